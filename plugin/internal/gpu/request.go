package gpu

import (
	"errors"
	"fmt"
	"math/bits"
	"regexp"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	helpers "k8s.io/component-helpers/resource"

	"steersman.dev/plugin/internal/policy"
)

// Request is what a pod requests: Count devices with Milli of each, 1 to 1000, of one of the models; none: of any.
// Resource is the name under which a node must offer them: CountKey if annotations request them.
//
// A pod that requests no GPU has an empty one.
type Request struct {
	Count, Milli int64
	Models       []string
	Resource     string
}

// IsShared reports whether annotations request the devices, and not a container for those of a device plugin.
func (r Request) IsShared() bool { return r.Resource == CountKey }

// Accepts reports whether devices of the model will do; "" is a model that is not known.
func (r Request) Accepts(model string) bool {
	return len(r.Models) == 0 || model != "" && slices.Contains(r.Models, model)
}

// Fits reports whether enough devices have enough left.
func (r Request) Fits(free []int64) bool {
	var result int64
	for _, left := range free {
		if left >= r.Milli {
			result++
		}
	}
	return result >= r.Count
}

// BestFit returns the devices that the pod, which must fit, takes by default, as a bit mask: the fullest that suffice,
// the lowest index on ties.
func (r Request) BestFit(free []int64) uint64 {
	var chosen uint64
	for range r.Count {
		best, least := 0, int64(whole+1)
		for d, left := range free {
			if left >= r.Milli && left < least && chosen>>d&1 == 0 {
				best, least = d, left
			}
		}
		chosen |= 1 << best
	}
	return chosen
}

// MayHave reports whether the devices of a bit mask are as many as the pod requests, each with enough left.
func (r Request) MayHave(devices uint64, free []int64) bool {
	if devices>>len(free) != 0 || int64(bits.OnesCount64(devices)) != r.Count {
		return false
	}
	for d, left := range free {
		if devices>>d&1 != 0 && left < r.Milli {
			return false
		}
	}
	return true
}

// RequestOf returns what a pod requests, by annotations or of a device plugin. The error names the field that is wrong.
func RequestOf(pod *v1.Pod) (Request, error) {
	devices, name, err := pluginDevices(pod)
	if err != nil {
		return Request{}, err
	}
	count, milli, err := annotated(pod.Annotations)
	if err != nil {
		return Request{}, err
	}
	if devices > 0 {
		if count > 0 && (count != devices || milli != whole) {
			problem := fmt.Sprintf("%d contradicts the %d devices that the containers request", count, devices)
			return Request{}, annotationError(CountKey, problem)
		}
		count, milli = devices, whole
	} else {
		name = CountKey
	}
	if count == 0 {
		return Request{}, nil
	}
	models, err := acceptedModels(pod.Annotations[ModelKey])
	return Request{count, milli, models, name}, err
}

// annotated returns the number of devices and the milli of each that annotations request.
func annotated(notes map[string]string) (count, milli int64, err error) {
	counted, sized := notes[CountKey], notes[MilliKey]
	if counted == "" && sized == "" && !has(notes, CountKey) && !has(notes, MilliKey) {
		return 0, 0, nil
	}
	unit := fmt.Sprintf("of each device, 0 to %d", whole)
	if milli, err = amount(notes, MilliKey, whole, unit); err != nil {
		return 0, 0, err
	}
	if count, err = amount(notes, CountKey, MaxCount, fmt.Sprintf("devices, %d at most", MaxCount)); err != nil {
		return 0, 0, err
	}
	switch {
	case milli > 0 && count == 0:
		problem := fmt.Sprintf("is missing or 0 where %s is %d; give the number of devices", MilliKey, milli)
		return 0, 0, annotationError(CountKey, problem)
	case count > 0 && milli == 0 && has(notes, MilliKey):
		problem := fmt.Sprintf("is 0 of each of %d devices; expected 1 to %d", count, whole)
		return 0, 0, annotationError(MilliKey, problem)
	case count > 0 && milli == 0:
		milli = whole
	}
	return count, milli, nil
}

func has(notes map[string]string, key string) bool {
	_, ok := notes[key]
	return ok
}

// quantity is what a Kubernetes quantity looks like, without exponents that take long to work out.
var quantity = regexp.MustCompile(
	`^[+-]?([0-9]{1,20}(\.[0-9]{0,20})?|\.[0-9]{1,20})([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]{1,2})?$`)

// amount returns the integer in an annotation, a quantity such as 2 or 1k; 0 if it is not there.
func amount(notes map[string]string, key string, most int64, unit string) (int64, error) {
	text, ok := notes[key]
	if !ok {
		return 0, nil
	}
	result, err := wholeNumber(text, most)
	switch {
	case errors.Is(err, errTooMuch):
		return 0, annotationError(key, fmt.Sprintf("%s is too much; it is %s", shown(text), unit))
	case err != nil:
		return 0, annotationError(key, fmt.Sprintf("%s %v", shown(text), err))
	}
	return result, nil
}

var (
	errTooMuch  = errors.New("is too much")
	errNegative = errors.New("is negative; a quantity must be 0 or more")
	errNotWhole = errors.New("is not a whole number")
)

func wholeNumber(text string, most int64) (int64, error) {
	if short, err := strconv.ParseUint(text, 10, 63); err == nil && int64(short) <= most {
		return int64(short), nil
	}
	if !quantity.MatchString(text) {
		return 0, errNotWhole
	}
	value, err := resource.ParseQuantity(text)
	switch {
	case err != nil:
		return 0, errNotWhole
	case value.Sign() < 0:
		return 0, errNegative
	case value.CmpInt64(most) > 0:
		return 0, errTooMuch
	case value.CmpInt64(value.Value()) != 0:
		return 0, errNotWhole
	}
	return value.Value(), nil
}

// acceptedModels returns those of an annotation "A|B", which may be empty.
func acceptedModels(text string) ([]string, error) {
	text = strings.TrimSpace(text)
	if text == "" {
		return nil, nil
	}
	models := strings.Split(text, "|")
	for _, model := range models {
		if strings.TrimSpace(model) == "" {
			return nil, annotationError(ModelKey, shown(text)+" has an empty model; write models as A|B")
		}
	}
	return models, nil
}

// pluginDevices returns the whole devices that containers request of a device plugin, and their name.
func pluginDevices(pod *v1.Pod) (devices int64, name string, err error) {
	if !asksForGPUs(pod.Spec.InitContainers) && !asksForGPUs(pod.Spec.Containers) {
		return 0, "", nil
	}
	asked := helpers.PodRequests(pod, helpers.PodResourcesOptions{})
	for _, key := range []v1.ResourceName{CountKey, MilliKey} {
		if _, ok := asked[key]; ok {
			problem := fmt.Sprintf("request %s, which belongs into metadata.annotations", key)
			return 0, "", &FieldError{"spec.containers", problem}
		}
	}
	for _, each := range pluginResources {
		result := asked[each.name]
		switch count := result.Value(); {
		case count > 0 && devices > 0:
			problem := fmt.Sprintf("request both %s and %s; a pod's GPUs must be of one kind", name, each.name)
			return 0, "", &FieldError{"spec.containers", problem}
		case result.CmpInt64(MaxCount) > 0:
			problem := fmt.Sprintf("request %d GPUs, more than any real pod (%d at most)", count, MaxCount)
			return 0, "", &FieldError{"spec.containers", problem}
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
	var text []byte
	for d := range policy.MaxDevices {
		if devices>>d&1 == 0 {
			continue
		}
		if len(text) > 0 {
			text = append(text, '-')
		}
		text = strconv.AppendInt(text, int64(d), 10)
	}
	return string(text)
}

// ParseIndex returns the devices in the annotation IndexKey of a pod that requests so many, as a bit mask; 0 for "".
func ParseIndex(text string, count int64) (uint64, error) {
	if text == "" {
		return 0, nil
	}
	var devices uint64
	wrong := int64(strings.Count(text, "-"))+1 != count
	for part := range strings.SplitSeq(text, "-") {
		number, ok := deviceNumber(part)
		if wrong = wrong || !ok || devices>>number&1 != 0; wrong {
			problem := fmt.Sprintf("%s does not name the pod's %d devices; write device numbers as 2-3-4", shown(text), count)
			return 0, annotationError(IndexKey, problem)
		}
		devices |= 1 << number
	}
	return devices, nil
}

func deviceNumber(text string) (uint64, bool) {
	if text == "" || len(text) > 4 || strings.Trim(text, "0123456789") != "" {
		return 0, false
	}
	number, err := strconv.ParseUint(text, 10, 64)
	return number, err == nil && number < policy.MaxDevices
}

// shown returns a text for a message: quoted, with what cannot be printed escaped, and short.
func shown(text string) string {
	if len(text) > 40 {
		text = text[:37] + "..."
	}
	return strconv.Quote(text)
}
