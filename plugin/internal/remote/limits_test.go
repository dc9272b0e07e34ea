package remote

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
)

func TestLimitNamesTheNodesOfTheMask(t *testing.T) {
	nodes := nodesNamed("a", "b", "c", "d", "e", "f", "g", "h", "i")
	var bodies []map[string]any
	client := asking(t, func(w http.ResponseWriter, r *http.Request) {
		var body map[string]any
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil || r.URL.Path != "/v1/limits" {
			t.Errorf("%s: %v", r.URL.Path, err)
		}
		bodies = append(bodies, body)
		// bits 0, 2 and 8 of the nodes that were asked about, in the order of the snapshot
		_, _ = fmt.Fprint(w, `{"nodeSet": "v1", "kept": "BQE=", "outcome": "kept safely", "ignored": ["x"]}`)
	}, &nodes)
	shuffled := slices.Clone(nodes)
	slices.Reverse(shuffled)
	for range 2 {
		limit, err := client.Limit(t.Context(), somePod(), shuffled)
		if err != nil || limit.Outcome != "kept safely" || len(limit.Ignored) != 1 {
			t.Fatalf("%+v, %v", limit, err)
		}
		if !slices.Equal(limit.Nodes, []string{"a", "c", "i"}) {
			t.Errorf("kept are %v", limit.Nodes)
		}
	}
	if bodies[0]["nodes"] == nil || bodies[1]["nodes"] != nil || bodies[1]["nodeSet"] != "v1" {
		t.Errorf("asked %v", bodies)
	}
}

func TestLimitsThatMakeNoSenseAreErrors(t *testing.T) {
	nodes := nodesNamed("a", "b")
	for _, each := range []struct{ answer, says string }{
		{`{`, "malformed"},
		{`{"nodeSet": "v", "nodeSet": "w"}`, "duplicate field"},
		{`{"outcome": "kept"}`, "no version"},
		{`{"nodeSet": "v", "kept": "AAAA"}`, "are not a mask of 2 nodes"},
		{`{"nodeSet": "v", "kept": "?"}`, "malformed"},
		{`{"nodeSet": "v", "kept": "AA=="}`, "leaves no node"},
		{`{"nodeSet": "v", "kept": 3}`, "malformed"},
		{`{"nodeSet": "v", "neutral": "stale"}`, "neutral scores: stale"},
		{`{"nodeSet": "v", "ignored": ["` + strings.Repeat("x", 1<<14) + `"]}`, "longer than"},
	} {
		client := asking(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprint(w, each.answer) }, &nodes)
		if limit, err := client.Limit(t.Context(), somePod(), nodes); err == nil || !strings.Contains(err.Error(), each.says) {
			t.Errorf("%.60s: %+v, %v", each.answer, limit, err)
		}
	}
	client := asking(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprint(w, `{"nodeSet": "v", "kept": null, "outcome": "quite near"}`)
	}, &nodes)
	if limit, err := client.Limit(t.Context(), somePod(), nodes); err != nil || limit.Nodes != nil || limit.Outcome != "other" {
		t.Errorf("%+v, %v", limit, err)
	}
	hanging := asking(t, hang, &nodes)
	ctx, cancel := context.WithTimeout(t.Context(), short)
	defer cancel()
	if _, err := hanging.Limit(ctx, somePod(), nodes); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
}
