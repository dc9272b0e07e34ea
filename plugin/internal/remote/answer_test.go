package remote

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

func FuzzDecode(f *testing.F) {
	for _, seed := range []string{
		`{"policy":"p","nodeSet":"v","scores":[100,0,50],"neutral":""}`,
		`{"nodeSet":"v","scores":[ 1 , 2,3 ]}`,
		`{"nodeSet":"v","scores":[1,2,3],"scores":[1,2,3]}`,
		`{"scores":[NaN]}`, `{"scores":{"a":1}}`, `[]`, `null`, `{"nodeSet":"v","scores":[1e1,-0,3.0]}`,
		`{"nodeSet":"v","scores":[1,2,3],"neutral":"stale"}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		decoded, err := decode(content, "")
		if err != nil {
			if strings.ContainsAny(err.Error(), "\n\r\x1b") {
				t.Errorf("more than a line: %q", err)
			}
			return
		}
		var plain struct {
			Scores []float64 `json:"scores"`
		}
		if json.Unmarshal(content, &plain) != nil || len(plain.Scores) != len(decoded.Scores) {
			t.Fatalf("took %q for %d scores", content, len(decoded.Scores))
		}
		for i, score := range decoded.Scores {
			if score < 0 || score > 100 || float64(score) != plain.Scores[i] {
				t.Errorf("scores[%d] is %d in %q", i, score, content)
			}
		}
	})
}

func BenchmarkScores(b *testing.B) {
	for _, count := range []int{420, 1000, 5000} {
		b.Run(fmt.Sprint(count), func(b *testing.B) {
			nodes, out := manyNodes(count), make([]int64, count)
			client := asking(b, (&service{}).answer, &nodes)
			for b.Loop() {
				if err := client.Scores(b.Context(), somePod(), nodes, out); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkQuestion(b *testing.B) {
	pod, nodes := somePod(), manyNodes(1000)
	snapshot := snapshotNodes{list: snapshotOf(&nodes)}
	for b.Loop() {
		asked, err := snapshot.ask(nodes)
		if err != nil {
			b.Fatal(err)
		}
		asked.Pod = stripPod(pod)
		if _, err := json.Marshal(asked); err != nil {
			b.Fatal(err)
		}
		snapshot.setVersion(asked.list, "version")
	}
}

func BenchmarkDecode(b *testing.B) {
	list := strings.TrimSuffix(strings.Repeat("50,", 1000), ",")
	content := []byte(`{"policy":"p","nodeSet":"v","scores":[` + list + `],"neutral":""}`)
	for b.Loop() {
		if _, err := decode(content, ""); err != nil {
			b.Fatal(err)
		}
	}
}
