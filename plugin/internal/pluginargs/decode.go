// Package pluginargs decodes the arguments of a plugin in a KubeSchedulerConfiguration.
package pluginargs

import (
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
	if err := decode(raw, into); err != nil {
		return fmt.Errorf("args: %s", strings.Join(strings.Fields(err.Error()), " "))
	}
	return nil
}

func decode(raw *runtime.Unknown, into any) error {
	content := raw.Raw
	if len(content) == 0 {
		return nil
	}
	if raw.ContentType == runtime.ContentTypeYAML {
		var err error
		if content, err = yaml.YAMLToJSONStrict(content); err != nil {
			return err
		}
	}
	problems, err := json.UnmarshalStrict(content, into)
	if err != nil {
		return err
	}
	return errors.Join(problems...)
}
