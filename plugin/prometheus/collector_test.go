package prometheus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	fwk "k8s.io/kube-scheduler/framework"
)

const evaluated = 1_000_000.0 // Prometheus' clock

// point is a series that a server has.
type point struct {
	labels map[string]string
	value  string
}

func at(node string, value any) point {
	return point{map[string]string{"instance": node + ":9100"}, fmt.Sprint(value)}
}

// server is a Prometheus that knows some queries.
type server struct {
	mutex   sync.Mutex
	answers map[string][]point
	asked   []string
	broken  http.HandlerFunc // instead
}

func (s *server) set(query string, points ...point) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.answers == nil {
		s.answers = map[string][]point{}
	}
	s.answers[query] = points
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	query := r.FormValue("query")
	s.mutex.Lock()
	broken := s.broken
	s.mutex.Unlock()
	if broken != nil {
		broken(w, r)
		return
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.asked = append(s.asked, query)
	result := []any{}
	for _, each := range s.answers[query] {
		result = append(result, map[string]any{"metric": each.labels, "value": []any{evaluated, each.value}})
	}
	_ = json.NewEncoder(w).Encode(map[string]any{
		"status": "success", "data": map[string]any{"resultType": "vector", "result": result},
	})
}

// collecting is a collector of connections alone, and of latencies, of the nodes a, b and c.
func collecting(t *testing.T, more string) (*Collector, *server) {
	t.Helper()
	there := &server{}
	web := httptest.NewServer(there)
	t.Cleanup(web.Close)
	configuration, err := Parse("f", []byte(head+"prometheus: {url: \""+web.URL+"\", timeoutSeconds: 0.2}\n"+`
features:
  tcp_connections: {query: c, sampledAt: t}
  latency_milliseconds: {query: l, sampledAt: lt}
  cpu_used_percent: {query: ""}
  memory_available_bytes: {query: ""}
  filesystem_used_percent: {query: ""}
  network_received_bytes_per_second: {query: ""}
  running_pods: {query: ""}
`+more))
	if err != nil {
		t.Fatal(err)
	}
	return New(configuration, func() []string { return []string{"a", "b", "c"} }), there
}

func same(got, want []float64) bool {
	return slices.EqualFunc(got, want, func(a, b float64) bool {
		return math.Abs(a-b) < 1e-9 || math.IsNaN(a) && math.IsNaN(b)
	})
}

var abc = []string{"a", "b", "c"}

func TestValuesAndTheirAge(t *testing.T) {
	c, there := collecting(t, "")
	there.set("c", at("a", 10), at("b", 20), at("c", 30), at("stranger", 40))
	there.set("t", at("a", evaluated-10), at("b", evaluated-119), at("c", evaluated-121))
	began := time.Now()
	c.refresh(t.Context())
	found := c.Readings().Column(Connections, "", abc, time.Now())
	if !same(found.Values, []float64{10, 20, 15}) { // c's is stale: the median of the others stands for it
		t.Errorf("%v", found.Values)
	}
	if !slices.Equal(found.Fresh, []bool{true, true, false}) {
		t.Errorf("%v", found.Fresh)
	}
	if age := began.Sub(found.Taken[0]); age < 9*time.Second || age > 11*time.Second {
		t.Errorf("a's is %v old", age)
	}
	later := c.Readings().Column(Connections, "", abc, began.Add(5*time.Second))
	if !slices.Equal(later.Fresh, []bool{true, false, false}) {
		t.Errorf("five seconds later: %v", later.Fresh)
	}
	if gone := c.Readings().Column(Connections, "", abc, began.Add(time.Hour)); slices.Contains(gone.Fresh, true) ||
		!math.IsNaN(gone.Values[0]) {
		t.Errorf("an hour later: %v", gone)
	}
}

func TestAValueWithoutATimeIsNone(t *testing.T) {
	c, there := collecting(t, "")
	there.set("c", at("a", 10), at("b", 20))
	there.set("t", at("a", evaluated))
	c.refresh(t.Context())
	found := c.Readings().Column(Connections, "", abc, time.Now())
	if !slices.Equal(found.Fresh, []bool{true, false, false}) {
		t.Errorf("%v", found.Fresh)
	}
}

func TestOddValues(t *testing.T) {
	c, there := collecting(t, "")
	there.set("c", at("a", "NaN"), at("b", "+Inf"), at("c", -5))
	there.set("t", at("a", evaluated), at("b", evaluated), at("c", evaluated+100)) // a clock that is ahead
	c.refresh(t.Context())
	found := c.Readings().Column(Connections, "", abc, time.Now())
	if !slices.Equal(found.Fresh, []bool{false, false, true}) || found.Values[2] != 0 || time.Until(found.Taken[2]) > 0 {
		t.Errorf("%+v", found)
	}
}

func TestTheNewestOfANodesSeriesCounts(t *testing.T) {
	c, there := collecting(t, "")
	there.set("c", at("a", 10), point{map[string]string{"instance": "a:9200"}, "30"})
	there.set("t", at("a", evaluated-10), point{map[string]string{"instance": "a:9200"}, fmt.Sprint(evaluated - 5)})
	c.refresh(t.Context())
	if found := c.Readings().Column(Connections, "", abc, time.Now()); found.Values[0] != 30 {
		t.Errorf("%+v", found)
	}
}

func TestWhatARoundDoesNotBringGrowsOld(t *testing.T) {
	for _, when := range []string{"last", "impute", "neutral"} {
		c, there := collecting(t, "")
		feature := c.configuration.Features[Connections]
		feature.WhenStale = when
		c.configuration.Features[Connections] = feature
		there.set("c", at("a", 10), at("b", 20), at("c", 40))
		there.set("t", at("a", evaluated-100), at("b", evaluated), at("c", evaluated))
		c.refresh(t.Context())
		there.set("c", at("b", 20), at("c", 40))
		c.refresh(t.Context())
		want := map[string]float64{"last": 10, "impute": 30, "neutral": math.NaN()}[when]
		found := c.Readings().Column(Connections, "", abc, time.Now().Add(30*time.Second))
		if !same(found.Values, []float64{want, 20, 40}) {
			t.Errorf("%s: %v", when, found.Values)
		}
	}
}

func TestNodesThatAreGoneAreForgotten(t *testing.T) {
	c, there := collecting(t, "")
	there.set("c", at("a", 10))
	there.set("t", at("a", evaluated))
	c.refresh(t.Context())
	c.nodes = func() []string { return []string{"b"} }
	c.refresh(t.Context())
	if len(c.Readings().values[Connections]) != 0 {
		t.Errorf("%v", c.Readings().values)
	}
}

func TestLatencies(t *testing.T) {
	c, there := collecting(t, "")
	to := func(user, node string, value any) point {
		return point{map[string]string{"instance": node, "user": user}, fmt.Sprint(value)}
	}
	there.set("l", to("shops", "a", 10), to("games", "a", 20), to("shops", "b", 30))
	there.set("lt", to("shops", "a", evaluated), to("games", "a", evaluated-60), to("shops", "b", evaluated))
	c.refresh(t.Context())
	now := time.Now()
	readings, nan := c.Readings(), math.NaN()
	for user, want := range map[string][]float64{
		"shops": {10, 30, nan}, "games": {20, nan, nan}, "nobody": {nan, nan, nan}, "": {20, nan, nan},
	} {
		if found := readings.Column(Latency, user, abc, now); !same(found.Values, want) {
			t.Errorf("%q: %v", user, found.Values)
		}
	}
	// The latency to all is as old as the oldest.
	if readings.Column(Latency, "", abc, now.Add(70*time.Second)).Fresh[0] ||
		!readings.Column(Latency, "shops", abc, now.Add(70*time.Second)).Fresh[0] {
		t.Error("ages")
	}
}

func TestTooManyUsers(t *testing.T) {
	c, there := collecting(t, "")
	var values, times []point
	for i := range 2 * mostUsers {
		labels := map[string]string{"instance": "a", "user": fmt.Sprint(i)}
		values, times = append(values, point{labels, "1"}), append(times, point{labels, fmt.Sprint(evaluated)})
	}
	there.set("l", values...)
	there.set("lt", times...)
	c.refresh(t.Context())
	if len(c.Readings().latency) != mostUsers {
		t.Errorf("%d", len(c.Readings().latency))
	}
}

// TestFaults: whatever Prometheus does, what is known stays, and the error is one line.
func TestFaults(t *testing.T) {
	says := func(body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, body) }
	}
	vector := func(result string) http.HandlerFunc {
		return says(`{"status": "success", "data": {"resultType": "vector", "result": ` + result + `}}`)
	}
	for _, test := range []struct {
		name   string
		answer http.HandlerFunc
		want   string
	}{
		{"hangs", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, "no answer within"},
		{"hangs up", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, "cannot be reached"},
		{"bad query", func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(400)
			_, _ = io.WriteString(w, `{"status": "error", "error": "parse\nerror"}`)
		}, `"parse\nerror" (HTTP 400)`},
		{"500", func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "oh", 500) }, "does not answer as Prometheus"},
		{"garbage", says("\x00garbage"), "does not answer as Prometheus"},
		{"huge", says(strings.Repeat(" ", 1<<11)), "larger than 1024 bytes"},
		{"a scalar", says(`{"status": "success", "data": {"resultType": "scalar", "result": [1, "1"]}}`), "instant vector"},
		{"no data", says(`{"status": "success"}`), "does not answer as Prometheus"},
		{"no list", vector(`{}`), "does not answer as Prometheus"},
		{"no pair", vector(`[{"metric": {}, "value": [1]}]`), "does not answer as Prometheus"},
		{"no number", vector(`[{"metric": {}, "value": [1, "x"]}]`), "does not answer as Prometheus"},
		{"no text", vector(`[{"metric": {}, "value": [1, 1]}]`), "does not answer as Prometheus"},
		{"redirects", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/x", http.StatusTemporaryRedirect) }, "HTTP 307"},
	} {
		t.Run(test.name, func(t *testing.T) {
			c, there := collecting(t, "")
			c.client.server.MaxBodyBytes = 1 << 10
			there.set("c", at("a", 10))
			there.set("t", at("a", evaluated))
			c.refresh(t.Context())
			if c.problem != "" {
				t.Fatal(c.problem)
			}
			there.mutex.Lock()
			there.broken = test.answer
			there.mutex.Unlock()
			c.refresh(t.Context())
			if !strings.Contains(c.problem, test.want) || strings.Contains(c.problem, "\n") {
				t.Errorf("said %q", c.problem)
			}
			if found := c.Readings().Column(Connections, "", abc, time.Now()); !found.Fresh[0] {
				t.Error("what was known is lost")
			}
			there.mutex.Lock()
			there.broken = nil
			there.mutex.Unlock()
			c.refresh(t.Context())
			if c.problem != "" {
				t.Errorf("afterwards: %s", c.problem)
			}
		})
	}
}

func TestItAsksInTheBackground(t *testing.T) {
	c, there := collecting(t, "")
	c.configuration.RefreshSeconds = 0.01
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { c.Run(ctx); close(ended) }()
	end := time.Now().Add(10 * time.Second)
	for {
		there.mutex.Lock()
		asked := len(there.asked)
		there.mutex.Unlock()
		if asked >= 12 {
			break
		}
		if time.Now().After(end) {
			t.Fatal("it does not ask")
		}
		c.Readings().Column(Latency, "", abc, time.Now())
		time.Sleep(time.Millisecond)
	}
	cancel()
	<-ended
}

type named struct {
	fwk.NodeInfo
	node *v1.Node
}

func (n *named) Node() *v1.Node { return n.node }

func TestRankingByAFeature(t *testing.T) {
	c, there := collecting(t, "")
	nodes := make([]fwk.NodeInfo, 3)
	for i, name := range abc {
		nodes[i] = &named{node: &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}}
	}
	source, err := NewByFeature(c, Connections)
	if err != nil {
		t.Fatal(err)
	}
	out := make([]int64, 3)
	if err := source.Scores(t.Context(), nil, nodes, out); !errors.Is(err, ErrStale) {
		t.Errorf("nothing is known: %v", err)
	}
	there.set("c", at("a", 30), at("b", 10))
	there.set("t", at("a", evaluated), at("b", evaluated))
	c.refresh(t.Context())
	if err := source.Scores(t.Context(), nil, nodes, out); err != nil || !slices.Equal(out, []int64{0, 100, 49}) {
		t.Errorf("%v, %v", out, err)
	}
	there.set("t", at("a", evaluated-3600), at("b", evaluated-3600)) // values an hour old
	c.readings.Store(&Readings{configuration: c.configuration})
	c.refresh(t.Context())
	if err := source.Scores(t.Context(), nil, nodes, out); !errors.Is(err, ErrStale) {
		t.Errorf("values are an hour old: %v, %v", out, err)
	}
	for _, feature := range []string{"traffic", CPUUsed} {
		if _, err := NewByFeature(c, feature); err == nil {
			t.Errorf("%s is taken", feature)
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"status":"success","data":{"resultType":"vector","result":[{"metric":{"a":"b"},"value":[1,"NaN"]}]}}`))
	f.Add([]byte(`{"status":"error","error":"x"}`))
	f.Add([]byte(`{"status":"success","data":{"resultType":"matrix","result":[]}}`))
	f.Fuzz(func(t *testing.T, content []byte) {
		if _, err := decode(content); err != nil && strings.ContainsAny(err.Error(), "\n\r\x1b") {
			t.Errorf("more than a line: %q", err)
		}
	})
}
