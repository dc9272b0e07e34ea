// Package pluginargs decodes the arguments of a plugin in a KubeSchedulerConfiguration.
package pluginargs

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// Decode writes arguments, which may be nil, into a struct. Unknown and duplicate fields are errors; the error is one
// line.
func Decode(given runtime.Object, into any) error {
	if given == nil {
		return nil
	}
	raw, ok := given.(*runtime.Unknown)
	if !ok {
		return fmt.Errorf("args: are %T, no object", given)
	}
	if len(raw.Raw) == 0 {
		return nil
	}
	content, problems, err := raw.Raw, []error(nil), error(nil)
	if raw.ContentType == runtime.ContentTypeYAML {
		content, err = yaml.YAMLToJSONStrict(content)
	}
	if err == nil {
		problems, err = json.UnmarshalStrict(content, into)
	}
	if err = cmp.Or(err, errors.Join(problems...)); err != nil {
		return fmt.Errorf("args: %s", strings.Join(strings.Fields(err.Error()), " "))
	}
	return nil
}
