package remote

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"steersman.dev/plugin/internal/scoring"
)

const (
	deadline = 30 * time.Second       // for what answers, on however busy a machine
	short    = 100 * time.Millisecond // for what never does
)

// named is a node of which the name is known and nothing else.
type named struct {
	fwk.NodeInfo
	node *v1.Node
}

func (n *named) Node() *v1.Node { return n.node }

func nodesNamed(names ...string) []fwk.NodeInfo {
	result := make([]fwk.NodeInfo, len(names))
	for i, name := range names {
		result[i] = &named{node: &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}}
	}
	return result
}

func manyNodes(count int) []fwk.NodeInfo {
	names := make([]string, count)
	for i := range names {
		names[i] = fmt.Sprintf("node-%06d", i)
	}
	return nodesNamed(names...)
}

func somePod() *v1.Pod {
	requests := v1.ResourceList{"cpu": resource.MustParse("500m"), "memory": resource.MustParse("1Gi")}
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: "web-1", Namespace: "shop",
			Labels:        map[string]string{"app": "web"},
			Annotations:   map[string]string{v1.LastAppliedConfigAnnotation: strings.Repeat("x", 1000), "alibabacloud.com/gpu-milli": "500"},
			ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubectl"}},
		},
		Spec:   v1.PodSpec{Containers: []v1.Container{{Name: "main", Resources: v1.ResourceRequirements{Requests: requests}}}},
		Status: v1.PodStatus{Phase: v1.PodPending},
	}
}

// asking is a client of a service, and of a scheduler whose snapshot is all.
func asking(t testing.TB, handler http.HandlerFunc, all *[]fwk.NodeInfo) *Client {
	t.Helper()
	server := httptest.NewServer(handler)
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(func() { cancel(); server.CloseClientConnections(); server.Close() })
	client, err := New(ctx, Config{Endpoint: server.URL}, snapshotOf(all))
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func snapshotOf(all *[]fwk.NodeInfo) scoring.Snapshot {
	return func() ([]fwk.NodeInfo, error) { return *all, nil }
}

func scoresOf(t testing.TB, client *Client, nodes []fwk.NodeInfo) ([]int64, error) {
	t.Helper()
	return scoresWithTimeout(t, deadline, client, nodes)
}

func scoresWithTimeout(t testing.TB, timeout time.Duration, client *Client, nodes []fwk.NodeInfo) ([]int64, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	out := make([]int64, len(nodes))
	return out, client.Scores(ctx, somePod(), nodes, out)
}

// service is a score service that gives a node its last digit as a score.
type service struct {
	mutex  sync.Mutex
	sets   map[string][]string
	asked  []map[string]json.RawMessage
	closes bool // the connection after each answer
}

func (s *service) answer(w http.ResponseWriter, r *http.Request) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	asked := map[string]json.RawMessage{}
	content, err := io.ReadAll(r.Body)
	if err != nil || json.Unmarshal(content, &asked) != nil || r.URL.Path != "/v1/scores" || r.Method != http.MethodPost {
		http.Error(w, `{"error": "bad"}`, http.StatusBadRequest)
		return
	}
	s.asked = append(s.asked, asked)
	var names []string
	var version string
	if asked["nodeSet"] != nil {
		_ = json.Unmarshal(asked["nodeSet"], &version)
		names = s.sets[version]
		if names == nil {
			http.Error(w, `{"error": "nodeSet is not known here"}`, http.StatusNotFound)
			return
		}
	} else {
		_ = json.Unmarshal(asked["nodes"], &names)
		version = fmt.Sprintf("set-%d", len(s.sets))
		if s.sets == nil {
			s.sets = map[string][]string{}
		}
		s.sets[version] = names
	}
	var among []byte
	_ = json.Unmarshal(asked["among"], &among)
	scores := []int{}
	for i, name := range names {
		if among[i/8]>>(i%8)&1 == 1 {
			scores = append(scores, int(name[len(name)-1]-'0'))
		}
	}
	if s.closes {
		w.Header().Set("Connection", "close")
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"policy": "p", "nodeSet": version, "scores": scores, "neutral": "", "new": 1})
}

func TestNamesAreSentOnce(t *testing.T) {
	there, all := &service{}, nodesNamed("a1", "b2", "c3", "d4", "e5", "f6", "g7", "h8", "i9")
	more := append(slices.Clone(all), nodesNamed("j0")...)
	shown := all
	client := asking(t, there.answer, &shown)
	for i, test := range []struct {
		all  []fwk.NodeInfo
		some []int
		want []int64
		sent string
	}{
		{all, []int{0, 1, 2}, []int64{1, 2, 3}, "nodes"},
		{all, []int{0, 1, 2}, []int64{1, 2, 3}, "nodeSet"},
		{all, []int{2, 0, 8}, []int64{3, 1, 9}, "nodeSet"},
		{all, []int{8, 7, 6, 5, 4, 3, 2, 1, 0}, []int64{9, 8, 7, 6, 5, 4, 3, 2, 1}, "nodeSet"},
		{more, []int{9, 1}, []int64{0, 2}, "nodes"},
		{more, []int{1, 9}, []int64{2, 0}, "nodeSet"},
		{all[:2], []int{1}, []int64{2}, "nodes"},
		{all[1:3], []int{1}, []int64{3}, "nodes"},
		{[]fwk.NodeInfo{all[2], all[1]}, []int{0, 1}, []int64{3, 2}, "nodes"},
	} {
		shown = test.all
		some := make([]fwk.NodeInfo, len(test.some))
		for at, n := range test.some {
			some[at] = shown[n]
		}
		got, err := scoresOf(t, client, some)
		if err != nil || !slices.Equal(got, test.want) {
			t.Fatalf("%d: %v, %v", i, got, err)
		}
		last := there.asked[len(there.asked)-1]
		if len(last) != 3 || last["pod"] == nil || last["among"] == nil || last[test.sent] == nil {
			t.Errorf("%d: sent %v", i, last)
		}
	}
}

func TestAServiceThatForgotIsSentTheNamesAgain(t *testing.T) {
	there, nodes := &service{}, nodesNamed("a1", "b2")
	client := asking(t, there.answer, &nodes)
	for range 2 {
		if _, err := scoresOf(t, client, nodes); err != nil {
			t.Fatal(err)
		}
	}
	there.mutex.Lock()
	there.sets = nil // it was started again
	there.mutex.Unlock()
	got, err := scoresOf(t, client, []fwk.NodeInfo{nodes[1], nodes[0]})
	if err != nil || !slices.Equal(got, []int64{2, 1}) || len(there.asked) != 4 {
		t.Errorf("%v, %v after %d requests", got, err, len(there.asked))
	}
	if _, err := scoresOf(t, client, nodes); err != nil || len(there.asked) != 5 {
		t.Errorf("%v: the new version is not used", err)
	}
}

func TestAVersionOfOtherNodesIsNotUsed(t *testing.T) {
	there, nodes := &service{}, nodesNamed("a1", "b2")
	client := asking(t, there.answer, &nodes)
	asked, err := client.nodes.ask(nodes)
	if err != nil {
		t.Fatal(err)
	}
	nodes = nodesNamed("c3", "d4") // while the service answers
	if _, err := client.nodes.ask(nodes); err != nil {
		t.Fatal(err)
	}
	client.nodes.setVersion(asked.list, "set-0")
	if got, err := scoresOf(t, client, nodes); err != nil || !slices.Equal(got, []int64{3, 4}) || there.asked[0]["nodes"] == nil {
		t.Errorf("%v, %v", got, err)
	}
}

func TestNodesThatAreNotInTheSnapshot(t *testing.T) {
	there, nodes := &service{}, nodesNamed("a1", "b2")
	client := asking(t, there.answer, &nodes)
	for _, some := range [][]fwk.NodeInfo{nodesNamed("c3"), {nodes[0], nodes[0]}} {
		if _, err := scoresOf(t, client, some); err == nil || len(there.asked) > 0 {
			t.Errorf("%v", err)
		}
	}
	nodes = append(nodes, framework.NewNodeInfo(), framework.NewNodeInfo()) // nodes that are gone
	if got, err := scoresOf(t, client, nodes[:2]); err != nil || !slices.Equal(got, []int64{1, 2}) {
		t.Errorf("%v, %v", got, err)
	}
	client.nodes.list = func() ([]fwk.NodeInfo, error) { return nil, errors.New("no") }
	if _, err := scoresOf(t, client, nodes[:2]); err == nil {
		t.Error("there is no snapshot")
	}
}

func TestThePodIsSentWithoutWhatNobodyLooksAt(t *testing.T) {
	there, nodes := &service{}, nodesNamed("a1")
	client := asking(t, there.answer, &nodes)
	if _, err := scoresOf(t, client, nodes); err != nil {
		t.Fatal(err)
	}
	var sent v1.Pod
	if err := json.Unmarshal(there.asked[0]["pod"], &sent); err != nil {
		t.Fatal(err)
	}
	pod := somePod()
	if len(sent.ManagedFields) > 0 || len(sent.Annotations) != 1 || sent.Status.Phase != "" {
		t.Errorf("sent %s", there.asked[0]["pod"])
	}
	if sent.Name != "web-1" || sent.Namespace != "shop" || sent.Labels["app"] != "web" ||
		!sent.Spec.Containers[0].Resources.Requests.Cpu().Equal(*pod.Spec.Containers[0].Resources.Requests.Cpu()) {
		t.Errorf("sent %s", there.asked[0]["pod"])
	}
}

func TestConnectionsAreKept(t *testing.T) {
	there, connected := &service{}, atomic.Int64{}
	server := httptest.NewUnstartedServer(http.HandlerFunc(there.answer))
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			connected.Add(1)
		}
	}
	server.Start()
	defer server.Close()
	nodes := nodesNamed("a1", "b2")
	client, err := New(t.Context(), Config{Endpoint: server.URL + "/"}, snapshotOf(&nodes))
	if err != nil {
		t.Fatal(err)
	}
	for range 20 {
		if _, err := scoresOf(t, client, nodes); err != nil {
			t.Fatal(err)
		}
	}
	if connected.Load() != 1 {
		t.Errorf("%d connections for 20 requests", connected.Load())
	}
	there.closes = true
	for range 3 {
		if _, err := scoresOf(t, client, nodes); err != nil {
			t.Errorf("after a closed connection: %v", err)
		}
	}
}

func TestManyAskAtATime(t *testing.T) {
	all := nodesNamed("a1", "b2", "c3", "d4", "e5")
	client := asking(t, (&service{}).answer, &all)
	var askers sync.WaitGroup
	for i := range 8 {
		askers.Go(func() {
			for j := range 20 {
				third := (i + j) % 3
				nodes, out := []fwk.NodeInfo{all[1], all[2+third], all[0]}, make([]int64, 3)
				err := client.Scores(t.Context(), somePod(), nodes, out)
				if err != nil || !slices.Equal(out, []int64{2, int64(3 + third), 1}) {
					t.Errorf("%v, %v", out, err)
				}
			}
		})
	}
	askers.Wait()
}

func TestAPodThatIsGivenUp(t *testing.T) {
	nodes := nodesNamed("a1")
	client := asking(t, hang, &nodes)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := client.Scores(ctx, somePod(), nodes, make([]int64, 1)); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

func TestWhatABreakerIsTold(t *testing.T) {
	for _, test := range []struct {
		err  error
		want bool
	}{
		{nil, false},
		{errors.New("other"), true},
		{fmt.Errorf("wrapped: %w", declined("shadow")), false},
		{declined("stale"), false},
		{declined("overload"), true},
		{declined("deadline"), true},
	} {
		if got := scoring.Failure(test.err); (got != nil) != test.want {
			t.Errorf("%v: %v", test.err, got)
		}
	}
}

func TestConfigurationsThatMakeNoSense(t *testing.T) {
	for _, test := range []struct {
		config Config
		field  string
	}{
		{Config{}, "endpoint"},
		{Config{Endpoint: "localhost:5000"}, "endpoint"},
		{Config{Endpoint: "unix:///run/x"}, "endpoint"},
		{Config{Endpoint: "http://\x7f"}, "endpoint"},
		{Config{Endpoint: "http://user:secret@host"}, "endpoint"},
		{Config{Endpoint: "https://host?x=1"}, "endpoint"},
		{Config{Endpoint: "https://host", CertFile: "c"}, "certFile, keyFile"},
		{Config{Endpoint: "https://host", KeyFile: "k"}, "certFile, keyFile"},
		{Config{Endpoint: "http://host", CAFile: "c"}, "caFile, certFile"},
	} {
		_, err := New(t.Context(), test.config, nil)
		if err == nil || !strings.HasPrefix(err.Error(), test.field+":") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%+v: %v", test.config, err)
		}
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("the password is told: %v", err)
		}
	}
}
