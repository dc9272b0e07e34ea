package gpushare

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"

	"steersman.dev/plugin/internal/gpu"
)

// server answers bindings, and questions about the pod afterwards.
type server struct {
	binding      int     // the status of the answer; 0: the connection is cut
	pod          *v1.Pod // nil: there is none
	trouble      int     // so many questions are answered by 503 first
	said         v1.Binding
	requestState int
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	answer := func(code int, object any) {
		w.WriteHeader(code)
		_ = json.NewEncoder(w).Encode(object)
	}
	failure := func(code int) {
		meta := metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
		answer(code, metav1.Status{TypeMeta: meta, Status: "Failure", Code: int32(code), Message: "no"})
	}
	if r.Method == http.MethodPost {
		body, _ := io.ReadAll(r.Body)
		_ = json.Unmarshal(body, &s.said)
		switch {
		case s.binding == 0:
			panic(http.ErrAbortHandler)
		case s.binding < 300:
			answer(s.binding, metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Success"})
		default:
			failure(s.binding)
		}
		return
	}
	s.requestState++
	switch {
	case s.requestState <= s.trouble:
		failure(http.StatusServiceUnavailable)
	case s.pod == nil:
		failure(http.StatusNotFound)
	default:
		deepCopy := s.pod.DeepCopy()
		deepCopy.TypeMeta = metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"}
		answer(http.StatusOK, deepCopy)
	}
}

func TestBind(t *testing.T) {
	done := pod("x", "1 400 - 1", "n")
	another := pod("x", "1 400 - 1", "n")
	another.UID = "of another"
	for name, test := range map[string]struct {
		server       server
		bound        bool
		requestState int
	}{
		"well":                             {server{binding: 201}, true, 0},
		"the answer is lost":               {server{pod: done}, true, 1},
		"the binding is lost":              {server{pod: pod("x", "1 400", "")}, false, 1},
		"a conflict with ourselves":        {server{binding: 409, pod: done}, true, 1},
		"bound elsewhere":                  {server{binding: 409, pod: pod("x", "1 400 - 1", "m")}, false, 1},
		"bound by others":                  {server{binding: 409, pod: pod("x", "1 400 - 2", "n")}, false, 1},
		"another pod of the name":          {server{binding: 409, pod: another}, false, 1},
		"the pod is gone":                  {server{}, false, 1},
		"refused":                          {server{binding: 403, pod: done}, false, 0},
		"gone":                             {server{binding: 404, pod: done}, false, 0},
		"the server has to come to itself": {server{binding: 500, pod: done, trouble: 1}, true, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			answers := test.server
			listening := httptest.NewServer(&answers)
			defer listening.Close()
			p := plugin(t, listening.URL, []*v1.Node{node("n", "", 2)})
			p.ledger.Reserve("x", "n", 0b10, 400)
			status := p.Bind(t.Context(), nil, pod("x", "1 400", "n"), "n")
			if status.IsSuccess() != test.bound || answers.requestState != test.requestState {
				t.Errorf("%v, asked %d times; want %v, %d", status, answers.requestState, test.bound, test.requestState)
			}
			said := answers.said
			if said.Target.Name != "n" || said.Target.Kind != "Node" || said.UID != types.UID("x") ||
				said.Annotations[gpu.IndexKey] != "1" {
				t.Errorf("%+v", said)
			}
		})
	}
}

func TestBindLeavesOtherPodsToTheNextPlugin(t *testing.T) {
	p := plugin(t, "", []*v1.Node{node("n", "", 2)})
	if status := p.Bind(t.Context(), nil, pod("x", "", "n"), "n"); status.Code() != fwk.Skip {
		t.Error(status)
	}
}

func TestBindGivesUpWithTheScheduler(t *testing.T) {
	listening := httptest.NewServer(&server{trouble: 1 << 30})
	defer listening.Close()
	p := plugin(t, listening.URL, []*v1.Node{node("n", "", 2)})
	p.ledger.Reserve("x", "n", 0b10, 400)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if status := p.Bind(ctx, nil, pod("x", "1 400", "n"), "n"); status.IsSuccess() {
		t.Error("bound")
	}
}
