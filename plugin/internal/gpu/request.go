package gpu

import (
	"fmt"
	"math/bits"
	"regexp"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	helpers "k8s.io/component-helpers/resource"
)

// IsShared reports whether annotations request the devices, and not a container for those of a device plugin.
func IsShared(request Request) bool { return request.Resource == CountKey }

// RequestOf returns what a pod requests, by annotations or of a device plugin. The error names the field that is wrong.
func RequestOf(pod *v1.Pod) (Request, error) {
	devices, name, err := pluginDevices(pod)
	if err != nil {
		return Request{}, err
	}
	count, milli, err := annotated(pod.Annotations)
	switch {
	case err != nil:
		return Request{}, err
	case devices > 0 && count > 0 && (count != devices || milli != Whole):
		return Request{}, annotationError(CountKey,
			"%d contradicts the %d devices that the containers request", count, devices)
	case devices > 0:
		count, milli = devices, Whole
	case count > 0:
		name = CountKey
	default:
		return Request{}, nil
	}
	models, err := acceptedModels(pod.Annotations[ModelKey])
	return Request{Count: count, Milli: milli, Models: models, Resource: name}, err
}

// annotated returns the number of devices and the milli of each that annotations request.
func annotated(notes map[string]string) (count, milli int64, err error) {
	if milli, err = amount(notes, MilliKey, Whole, "of each device, 0 to %d"); err != nil {
		return 0, 0, err
	}
	if count, err = amount(notes, CountKey, MaxCount, "devices, %d at most"); err != nil {
		return 0, 0, err
	}
	_, sized := notes[MilliKey]
	switch {
	case milli > 0 && count == 0:
		err = annotationError(CountKey, "is missing or 0 where %s is %d; give the number of devices", MilliKey, milli)
	case count > 0 && milli == 0 && sized:
		err = annotationError(MilliKey, "is 0 of each of %d devices; expected 1 to %d", count, Whole)
	case count > 0 && milli == 0:
		milli = Whole
	}
	return count, milli, err
}

// quantity is what a Kubernetes quantity looks like, without exponents that take long to work out.
var quantity = regexp.MustCompile(
	`^[+-]?([0-9]{1,20}(\.[0-9]{0,20})?|\.[0-9]{1,20})([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]{1,2})?$`)

func parseQuantity(text string) (resource.Quantity, bool) {
	if !quantity.MatchString(text) {
		return resource.Quantity{}, false
	}
	value, err := resource.ParseQuantity(text)
	return value, err == nil
}

// amount returns the integer in an annotation, a quantity such as 2 or 1k; 0 if it is not there. unit says in an error
// what may be at most.
func amount(notes map[string]string, key string, most int64, unit string) (int64, error) {
	text, ok := notes[key]
	if !ok {
		return 0, nil
	}
	if short, err := strconv.ParseUint(text, 10, 63); err == nil && int64(short) <= most {
		return int64(short), nil
	}
	value, ok := parseQuantity(text)
	switch {
	case value.Sign() < 0:
		return 0, annotationError(key, "%s is negative; a quantity must be 0 or more", shown(text))
	case value.CmpInt64(most) > 0:
		return 0, annotationError(key, "%s is too much; it is "+unit, shown(text), most)
	case !ok || value.CmpInt64(value.Value()) != 0:
		return 0, annotationError(key, "%s is not a whole number", shown(text))
	}
	return value.Value(), nil
}

// acceptedModels returns those of an annotation "A|B", which may be empty.
func acceptedModels(text string) (string, error) {
	text = strings.TrimSpace(text)
	for model := range strings.SplitSeq(text, "|") {
		if text != "" && strings.TrimSpace(model) == "" {
			return "", annotationError(ModelKey, "%s has an empty model; write models as A|B", shown(text))
		}
	}
	return text, nil
}

// pluginDevices returns the whole devices that containers request of a device plugin, and their name.
func pluginDevices(pod *v1.Pod) (devices int64, name string, err error) {
	if !asksForGPUs(pod.Spec.InitContainers) && !asksForGPUs(pod.Spec.Containers) {
		return 0, "", nil
	}
	asked := helpers.PodRequests(pod, helpers.PodResourcesOptions{})
	for _, key := range []v1.ResourceName{CountKey, MilliKey} {
		if _, ok := asked[key]; ok {
			return 0, "", fmt.Errorf("spec.containers: request %s, which belongs into metadata.annotations", key)
		}
	}
	for _, each := range pluginResources {
		result := asked[each.name]
		switch count := result.Value(); {
		case count > 0 && devices > 0:
			return 0, "", fmt.Errorf("spec.containers: request both %s and %s; a pod's GPUs must be of one kind",
				name, each.name)
		case result.CmpInt64(MaxCount) > 0:
			return 0, "", fmt.Errorf("spec.containers: request %d GPUs, more than any real pod (%d at most)", count, MaxCount)
		case count > 0:
			devices, name = count, string(each.name)
		}
	}
	return devices, name, nil
}

func asksForGPUs(containers []v1.Container) bool {
	for i := range containers {
		for name := range containers[i].Resources.Requests {
			if name == CountKey || name == MilliKey || isPlugin(name) {
				return true
			}
		}
	}
	return false
}

// Index returns how devices, a bit mask, are written in the annotation IndexKey.
func Index(devices uint64) string {
	var numbers []string
	for ; devices != 0; devices &= devices - 1 {
		numbers = append(numbers, strconv.Itoa(bits.TrailingZeros64(devices)))
	}
	return strings.Join(numbers, "-")
}

// ParseIndex returns the devices in the annotation IndexKey of a pod that requests so many, as a bit mask; 0 for "".
func ParseIndex(text string, count int64) (uint64, error) {
	if text == "" {
		return 0, nil
	}
	var devices uint64
	valid := int64(strings.Count(text, "-"))+1 == count
	for part := range strings.SplitSeq(text, "-") {
		number, err := strconv.ParseUint(part, 10, 64)
		valid = valid && err == nil && len(part) <= 4 && number < MaxDevices && devices>>number&1 == 0
		if !valid {
			return 0, annotationError(IndexKey, "%s does not name the pod's %d devices; write device numbers as 2-3-4",
				shown(text), count)
		}
		devices |= 1 << number
	}
	return devices, nil
}

// shown returns a text for a message: quoted, with what cannot be printed escaped, and short.
func shown(text string) string {
	if len(text) > 40 {
		text = text[:37] + "..."
	}
	return strconv.Quote(text)
}
