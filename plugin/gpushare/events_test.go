package gpushare

import (
	"testing"

	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
)

func TestEventsThatMakeRoom(t *testing.T) {
	p := &Plugin{}
	holder, plain := pod("holder", "1 500 - 0", "n"), pod("plain", "", "n")
	nominated := pod("nominated", "1 500", "")
	nominated.Status.NominatedNodeName = "n"
	waiting := pod("waiting", "1 500 V100", "")
	touched := waiting.DeepCopy()
	touched.Status.Reason = "waits"
	for name, test := range map[string]struct {
		hint          fwk.QueueingHintFn
		before, after any
		want          bool
	}{
		"a holder leaves":             {p.afterPod, holder, nil, true},
		"a pod without GPUs leaves":   {p.afterPod, plain, nil, false},
		"another waiting pod leaves":  {p.afterPod, pod("other", "1 500", ""), nil, false},
		"a nominated pod leaves":      {p.afterPod, nominated, nil, true},
		"the pod is changed":          {p.afterPod, pod("waiting", "1 5000", ""), waiting, true},
		"its status is":               {p.afterPod, waiting, touched, false},
		"a holder's wish is changed":  {p.afterPod, holder, pod("holder", "1 300 - 0", "n"), true},
		"another waiting pod's is":    {p.afterPod, pod("other", "1 500", ""), pod("other", "1 400", ""), false},
		"a node comes":                {p.afterNode, nil, node("n", "V100", 1), true},
		"one of another model":        {p.afterNode, nil, node("n", "P100", 1), false},
		"one without GPUs":            {p.afterNode, nil, node("n", "V100", 0), false},
		"a node gets more":            {p.afterNode, node("n", "V100", 1), node("n", "V100", 2), true},
		"a node gets less":            {p.afterNode, node("n", "V100", 2), node("n", "V100", 1), false},
		"a node's model is corrected": {p.afterNode, node("n", "P100", 1), node("n", "V100", 1), true},
		"a node stays":                {p.afterNode, node("n", "V100", 1), node("n", "V100", 1), false},
	} {
		t.Run(name, func(t *testing.T) {
			found, err := test.hint(klog.Background(), waiting, test.before, test.after)
			if err != nil || (found == fwk.Queue) != test.want {
				t.Errorf("%v, %v; want %v", found, err, test.want)
			}
		})
	}
	if found, err := p.afterPod(klog.Background(), waiting, "nonsense", nil); err == nil || found != fwk.Queue {
		t.Errorf("%v, %v", found, err)
	}
	events, err := p.EventsToRegister(t.Context())
	if err != nil || len(events) != 2 {
		t.Error(events, err)
	}
}
