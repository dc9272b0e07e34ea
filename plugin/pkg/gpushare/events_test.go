package gpushare

import (
	"testing"

	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"steersman.dev/plugin/internal/gpu"
)

func TestEventsThatMakeRoom(t *testing.T) {
	p := &Plugin{}
	holder, plain := pod("holder", "1 500 - 0", "n"), pod("plain", "", "n")
	nominated := pod("nominated", "1 500", "")
	nominated.Status.NominatedNodeName = "n"
	waiting := pod("waiting", "1 500 V100", "")
	whole := wholePod("whole", "nvidia.com/gpu", "1", "")
	whole.Annotations[gpu.ModelKey] = "V100"
	touched := waiting.DeepCopy()
	touched.Status.Reason = "waits"
	for name, test := range map[string]struct {
		hint          fwk.QueueingHintFn
		before, after any
		want          bool
		whole         bool // the waiting pod is one of a device plugin
	}{
		"a holder leaves":                   {p.afterPod, holder, nil, true, false},
		"a pod without GPUs leaves":         {p.afterPod, plain, nil, false, false},
		"another waiting pod leaves":        {p.afterPod, pod("other", "1 500", ""), nil, false, false},
		"a nominated pod leaves":            {p.afterPod, nominated, nil, true, false},
		"the pod is changed":                {p.afterPod, pod("waiting", "1 5000", ""), waiting, true, false},
		"its status is":                     {p.afterPod, waiting, touched, false, false},
		"a holder's wish is changed":        {p.afterPod, holder, pod("holder", "1 300 - 0", "n"), true, false},
		"another waiting pod's is":          {p.afterPod, pod("other", "1 500", ""), pod("other", "1 400", ""), false, false},
		"a node comes":                      {p.afterNode, nil, node("n", "V100", 1), true, false},
		"one of another model":              {p.afterNode, nil, node("n", "P100", 1), false, false},
		"one without GPUs":                  {p.afterNode, nil, node("n", "V100", 0), false, false},
		"a node gets more":                  {p.afterNode, node("n", "V100", 1), node("n", "V100", 2), true, false},
		"a node gets less":                  {p.afterNode, node("n", "V100", 2), node("n", "V100", 1), false, false},
		"a node's model is corrected":       {p.afterNode, node("n", "P100", 1), node("n", "V100", 1), true, false},
		"a node stays":                      {p.afterNode, node("n", "V100", 1), node("n", "V100", 1), false, false},
		"a sharing pod makes way":           {p.afterPod, holder, nil, true, true},
		"a model that a DeviceClass serves": {p.afterNode, offering("n", "P100", "cpu", "1"), offering("n", "V100", "cpu", "1"), true, true},
		"a new node of it":                  {p.afterNode, nil, offering("n", "V100", "cpu", "1"), true, true},
		"a new node of another":             {p.afterNode, nil, offering("n", "P100", "nvidia.com/gpu", "1"), false, true},
		"the model stays":                   {p.afterNode, offering("n", "V100", "cpu", "1"), offering("n", "V100", "cpu", "2"), false, true},
	} {
		t.Run(name, func(t *testing.T) {
			asking := waiting
			if test.whole {
				asking = whole
			}
			result, err := test.hint(klog.Background(), asking, test.before, test.after)
			if err != nil || (result == fwk.Queue) != test.want {
				t.Errorf("%v, %v; want %v", result, err, test.want)
			}
		})
	}
	if result, err := p.afterPod(klog.Background(), waiting, "nonsense", nil); err == nil || result != fwk.Queue {
		t.Errorf("%v, %v", result, err)
	}
	events, err := p.EventsToRegister(t.Context())
	if err != nil || len(events) != 2 {
		t.Error(events, err)
	}
}
