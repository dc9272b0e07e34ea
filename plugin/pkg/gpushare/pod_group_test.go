//go:build !before1.36

package gpushare

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

// TestTheFilterSeesWhatAPodGroupsCycleAssumes is about the first part of it: members are assumed in the snapshot alone,
// where the generation of their node stays the same.
func TestTheFilterSeesWhatAPodGroupsCycleAssumes(t *testing.T) {
	p := plugin(t, "", []*v1.Node{node("n", "", 1)})
	snapshot := p.handle.(*handle).snapshot
	waiting := pod("waiting", "1 600", "")
	for _, wish := range []string{"1 500 - 0", "1 300 - 0", "1 500 - 0"} {
		if result := fits(p, waiting, "n"); result != "" {
			t.Fatal(result)
		}
		member, err := framework.NewPodInfo(pod("member", wish, "n"))
		if err == nil {
			err = snapshot.AssumePod(member)
		}
		if err != nil {
			t.Fatal(err)
		}
		if result := fits(p, waiting, "n"); (result != "") != (wish == "1 500 - 0") {
			t.Errorf("beside a member with %s: %q", wish, result)
		}
		if err := snapshot.ForgetPod(klog.Background(), member.Pod); err != nil {
			t.Fatal(err)
		}
	}
}
