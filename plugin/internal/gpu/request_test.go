package gpu

import (
	"math/bits"
	"reflect"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// notes are annotations in pairs: count, milli, models, index; "-" leaves one out.
func notes(values ...string) map[string]string {
	made := map[string]string{}
	for i, value := range values {
		if value != "-" {
			made[[...]string{CountKey, MilliKey, ModelKey, IndexKey}[i]] = value
		}
	}
	return made
}

func asking(notes map[string]string, resources ...string) *v1.Pod {
	wanted := v1.ResourceList{}
	for i := 0; i < len(resources); i += 2 {
		wanted[v1.ResourceName(resources[i])] = resource.MustParse(resources[i+1])
	}
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "pod", Annotations: notes},
		Spec:       v1.PodSpec{Containers: []v1.Container{{Resources: v1.ResourceRequirements{Requests: wanted}}}},
	}
}

func TestRequestOf(t *testing.T) {
	for name, test := range map[string]struct {
		pod  *v1.Pod
		want Request
		err  string // a part of it
	}{
		"nothing":               {asking(nil, "cpu", "1"), Request{}, ""},
		"a share":               {asking(notes("1", "300")), Request{Count: 1, Milli: 300, Resource: CountKey}, ""},
		"several":               {asking(notes("2", "1000", "V100|A10")), Request{Count: 2, Milli: 1000, Models: "V100|A10", Resource: CountKey}, ""},
		"no milli":              {asking(notes("2")), Request{Count: 2, Milli: 1000, Resource: CountKey}, ""},
		"a quantity":            {asking(notes("1e0", "0.3k")), Request{Count: 1, Milli: 300, Resource: CountKey}, ""},
		"zero of nothing":       {asking(notes("0", "0", "V100")), Request{}, ""},
		"zero":                  {asking(notes("0")), Request{}, ""},
		"models have spaces":    {asking(notes("1", "1", " V100 ")), Request{Count: 1, Milli: 1, Models: "V100", Resource: CountKey}, ""},
		"a device plugin":       {asking(nil, "nvidia.com/gpu", "3"), Request{Count: 3, Milli: 1000, Resource: "nvidia.com/gpu"}, ""},
		"both ways":             {asking(notes("3"), "amd.com/gpu", "3"), Request{Count: 3, Milli: 1000, Resource: "amd.com/gpu"}, ""},
		"models of a plugin's":  {asking(notes("-", "-", "G2"), "nvidia.com/gpu", "1"), Request{Count: 1, Milli: 1000, Models: "G2", Resource: "nvidia.com/gpu"}, ""},
		"too much":              {asking(notes("1", "1001")), Request{}, `gpu-milli']: "1001" is too much; it is of each device, 0 to 1000`},
		"too many":              {asking(notes("10001")), Request{}, `gpu-count']: "10001" is too much; it is devices, 10000 at most`},
		"negative":              {asking(notes("-1", "300")), Request{}, `"-1" is negative`},
		"half":                  {asking(notes("500m")), Request{}, `"500m" is not a whole number`},
		"a word":                {asking(notes("one")), Request{}, `"one" is not a whole number`},
		"empty":                 {asking(notes("")), Request{}, `"" is not a whole number`},
		"beyond everything":     {asking(notes("1e2000000000")), Request{}, "is not a whole number"},
		"large":                 {asking(notes("9223372036854775808")), Request{}, "is too much"},
		"line breaks":           {asking(notes("1\n2")), Request{}, `"1\n2" is not`},
		"milli of nothing":      {asking(notes("-", "300")), Request{}, "is missing or 0 where alibabacloud.com/gpu-milli is 300"},
		"nothing of many":       {asking(notes("2", "0")), Request{}, "is 0 of each of 2 devices; expected 1 to 1000"},
		"an empty model":        {asking(notes("1", "1", "A||B")), Request{}, `"A||B" has an empty model; write models as A|B`},
		"contradiction":         {asking(notes("2"), "nvidia.com/gpu", "3"), Request{}, "2 contradicts the 3 devices"},
		"both plugins":          {asking(nil, "nvidia.com/gpu", "3", "amd.com/gpu", "1"), Request{}, "request both nvidia.com/gpu and amd.com/gpu"},
		"requested as resource": {asking(nil, CountKey, "1"), Request{}, "belongs into metadata.annotations"},
		"far too many":          {asking(nil, "nvidia.com/gpu", "10001"), Request{}, "more than any real pod"},
	} {
		t.Run(name, func(t *testing.T) {
			request, err := RequestOf(test.pod)
			if err != nil && (test.err == "" || !strings.Contains(err.Error(), test.err)) || err == nil && test.err != "" {
				t.Fatalf("error %v; want one with %q", err, test.err)
			}
			if err == nil && !reflect.DeepEqual(request, test.want) {
				t.Errorf("%+v; want %+v", request, test.want)
			}
		})
	}
}

func TestParseIndex(t *testing.T) {
	for _, test := range []struct {
		text  string
		count int64
		want  uint64
		ok    bool
	}{
		{"", 2, 0, true},
		{"3", 1, 0b1000, true},
		{"2-0", 2, 0b101, true},
		{"61", 1, 1 << 61, true},
		{"62", 1, 0, false},
		{"0-0", 2, 0, false},
		{"0-1", 1, 0, false},
		{"0", 2, 0, false},
		{"0", 0, 0, false},
		{"0", -1, 0, false},
		{"-", 2, 0, false},
		{"0-", 2, 0, false},
		{"+1", 1, 0, false},
		{"00001", 1, 0, false},
		{"0001", 1, 0b10, true},
		{"x", 1, 0, false},
		{"\u0661", 1, 0, false},
	} {
		devices, err := ParseIndex(test.text, test.count)
		if devices != test.want && test.ok || (err == nil) != test.ok {
			t.Errorf("ParseIndex(%q, %d) = %b, %v; want %b, %v", test.text, test.count, devices, err, test.want, test.ok)
		}
	}
}

func TestBestFitTakesTheFullestDevicesThatSuffice(t *testing.T) {
	node := Node{GPUs: GPUs{Free: []int64{1000, 400, 300, 400, 1000}}}
	for _, test := range []struct {
		request Request
		want    uint64
	}{
		{Request{Count: 1, Milli: 300}, 0b00100},
		{Request{Count: 1, Milli: 301}, 0b00010},
		{Request{Count: 2, Milli: 400}, 0b01010},
		{Request{Count: 1, Milli: 1000}, 0b00001},
		{Request{Count: 2, Milli: 1000}, 0b10001},
	} {
		if bestFit := node.BestFit(&test.request); bestFit != test.want {
			t.Errorf("%+v gets %b; want %b", test.request, bestFit, test.want)
		}
		if !node.CanAllocate(test.want, &test.request) || node.CanAllocate(test.want|1<<5, &test.request) {
			t.Errorf("%+v may not have %b", test.request, test.want)
		}
	}
	if node.Fits(&Request{Count: 3, Milli: 1000}) || node.CanAllocate(0b100, &Request{Count: 1, Milli: 301}) {
		t.Error("what does not fit does")
	}
}

// FuzzRequest checks that no annotation takes long, fails badly, or yields a request that cannot be.
func FuzzRequest(f *testing.F) {
	for _, seed := range [][3]string{
		{"1", "300", ""}, {"2", "1000", "A|B"}, {"1e99", "1", ""}, {"-0", "+1.0", "|"}, {"1Ki", ".5k", "\n"}, {"1e-99", "0", ""},
	} {
		f.Add(seed[0], seed[1], seed[2])
	}
	f.Fuzz(func(t *testing.T, count, milli, models string) {
		request, err := RequestOf(asking(notes(count, milli, models)))
		if err != nil {
			if strings.ContainsAny(err.Error(), "\n\r\x1b") || !strings.Contains(err.Error(), "alibabacloud.com/gpu-") {
				t.Fatalf("the message is not a line that names the field: %q", err)
			}
			return
		}
		if request.Count == 0 {
			if request.Milli != 0 || request.Models != "" {
				t.Fatalf("a request for nothing: %+v", request)
			}
			return
		}
		if request.Count < 0 || request.Count > MaxCount || request.Milli < 1 || request.Milli > Whole {
			t.Fatalf("not a request: %+v", request)
		}
		if request.Accepts("") != (request.Models == "") {
			t.Fatalf("accepts what is not known: %+v", request)
		}
	})
}

// FuzzIndex checks that devices that were read are those that are written.
func FuzzIndex(f *testing.F) {
	for _, seed := range []string{"", "0", "2-3-4", "61", "0-0", "-", "1-", "9999", "x"} {
		f.Add(seed, int64(1))
		f.Add(seed, int64(3))
	}
	f.Fuzz(func(t *testing.T, text string, count int64) {
		devices, err := ParseIndex(text, count)
		if err != nil || text == "" {
			return
		}
		if int64(bits.OnesCount64(devices)) != count || devices>>62 != 0 {
			t.Fatalf("%q of %d: %b", text, count, devices)
		}
		if again, err := ParseIndex(Index(devices), count); err != nil || again != devices {
			t.Fatalf("%q: %b is written %q: %v", text, devices, Index(devices), err)
		}
	})
}
