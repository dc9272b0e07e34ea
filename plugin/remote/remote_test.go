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
)

const deadline = 100 * time.Millisecond

// named is a node of which the name is known and nothing else.
type named struct {
	fwk.NodeInfo
	node *v1.Node
}

func (n *named) Node() *v1.Node { return n.node }

func nodesNamed(names ...string) []fwk.NodeInfo {
	found := make([]fwk.NodeInfo, len(names))
	for i, name := range names {
		found[i] = &named{node: &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}}
	}
	return found
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
			Annotations:   map[string]string{applied: strings.Repeat("x", 1000), "alibabacloud.com/gpu-milli": "500"},
			ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubectl"}},
		},
		Spec:   v1.PodSpec{Containers: []v1.Container{{Name: "main", Resources: v1.ResourceRequirements{Requests: requests}}}},
		Status: v1.PodStatus{Phase: v1.PodPending},
	}
}

func asking(t testing.TB, handler http.HandlerFunc) *Client {
	t.Helper()
	server := httptest.NewServer(handler)
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(func() { cancel(); server.CloseClientConnections(); server.Close() })
	client, err := New(ctx, Config{Endpoint: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func scoresOf(t testing.TB, client *Client, nodes []fwk.NodeInfo) ([]int64, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
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
	scores := make([]int, len(names))
	for i, name := range names {
		scores[i] = int(name[len(name)-1] - '0')
	}
	if s.closes {
		w.Header().Set("Connection", "close")
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"policy": "p", "nodeSet": version, "scores": scores, "neutral": "", "new": 1})
}

func TestNamesAreSentOnce(t *testing.T) {
	there := &service{}
	client := asking(t, there.answer)
	for i, test := range []struct {
		nodes []string
		want  []int64
		sent  string
	}{
		{[]string{"a1", "b2", "c3"}, []int64{1, 2, 3}, "nodes"},
		{[]string{"a1", "b2", "c3"}, []int64{1, 2, 3}, "nodeSet"},
		{[]string{"c3", "a1", "b2"}, []int64{3, 1, 2}, "nodeSet"},
		{[]string{"a1", "b2"}, []int64{1, 2}, "nodes"},
		{[]string{"a1", "b2", "d4"}, []int64{1, 2, 4}, "nodes"},
		{[]string{"b2", "a1"}, []int64{2, 1}, "nodeSet"},
	} {
		got, err := scoresOf(t, client, nodesNamed(test.nodes...))
		if err != nil || !slices.Equal(got, test.want) {
			t.Fatalf("%d: %v, %v", i, got, err)
		}
		last := there.asked[len(there.asked)-1]
		if len(last) != 2 || last["pod"] == nil || last[test.sent] == nil {
			t.Errorf("%d: sent %v", i, last)
		}
	}
}

func TestAServiceThatForgotIsSentTheNamesAgain(t *testing.T) {
	there := &service{}
	client := asking(t, there.answer)
	nodes := nodesNamed("a1", "b2")
	for range 2 {
		if _, err := scoresOf(t, client, nodes); err != nil {
			t.Fatal(err)
		}
	}
	there.mutex.Lock()
	there.sets = nil // it was started anew
	there.mutex.Unlock()
	got, err := scoresOf(t, client, nodesNamed("b2", "a1"))
	if err != nil || !slices.Equal(got, []int64{2, 1}) || len(there.asked) != 4 {
		t.Errorf("%v, %v after %d requests", got, err, len(there.asked))
	}
	if _, err := scoresOf(t, client, nodes); err != nil || len(there.asked) != 5 {
		t.Errorf("%v: the new version is not used", err)
	}
}

func TestFewSetsAreRemembered(t *testing.T) {
	there := &service{}
	client := asking(t, there.answer)
	for i := range 3 * keptSets {
		if _, err := scoresOf(t, client, nodesNamed("a1", fmt.Sprintf("b%d2", i))); err != nil {
			t.Fatal(err)
		}
	}
	if len(client.sets.known) != keptSets || len(client.sets.used) != keptSets {
		t.Errorf("%d sets, %d uses", len(client.sets.known), len(client.sets.used))
	}
	if client.sets.find(nodesNamed("a1", "b02")) != nil || client.sets.find(nodesNamed("b952", "a1")) == nil {
		t.Error("the wrong ones were forgotten")
	}
}

func TestThePodIsSentWithoutWhatNobodyLooksAt(t *testing.T) {
	there := &service{}
	client := asking(t, there.answer)
	if _, err := scoresOf(t, client, nodesNamed("a1")); err != nil {
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
	client, err := New(t.Context(), Config{Endpoint: server.URL + "/"})
	if err != nil {
		t.Fatal(err)
	}
	for range 20 {
		if _, err := scoresOf(t, client, nodesNamed("a1", "b2")); err != nil {
			t.Fatal(err)
		}
	}
	if connected.Load() != 1 {
		t.Errorf("%d connections for 20 requests", connected.Load())
	}
	there.closes = true
	for range 3 {
		if _, err := scoresOf(t, client, nodesNamed("a1", "b2")); err != nil {
			t.Errorf("after a closed connection: %v", err)
		}
	}
}

func TestManyAskAtATime(t *testing.T) {
	client := asking(t, (&service{}).answer)
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for j := range 20 {
				nodes := nodesNamed("a1", "b2", fmt.Sprintf("c%d3", (i+j)%5))
				out := make([]int64, 3)
				err := client.Scores(t.Context(), somePod(), nodes, out)
				if err != nil || !slices.Equal(out, []int64{1, 2, 3}) {
					t.Errorf("%v, %v", out, err)
				}
			}
		})
	}
	all.Wait()
}

func TestAPodThatIsGivenUp(t *testing.T) {
	client := asking(t, hang)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := client.Scores(ctx, somePod(), nodesNamed("a1"), make([]int64, 1)); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

func TestWhatABreakerIsTold(t *testing.T) {
	other := errors.New("other")
	for _, test := range []struct {
		err  error
		want bool
	}{
		{nil, false},
		{other, true},
		{fmt.Errorf("wrapped: %w", &Declined{"canary"}), false},
		{&Declined{"shadow"}, false},
		{&Declined{"stale"}, false},
		{&Declined{"overload"}, true},
		{&Declined{"deadline"}, true},
	} {
		if got := Failure(test.err); (got != nil) != test.want {
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
		_, err := New(t.Context(), test.config)
		if err == nil || !strings.HasPrefix(err.Error(), test.field+":") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%+v: %v", test.config, err)
		}
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("the password is told: %v", err)
		}
	}
}
