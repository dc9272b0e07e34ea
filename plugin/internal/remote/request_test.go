package remote

import (
	"bytes"
	"encoding/json"
	"flag"
	"io"
	"net/http"
	"os"
	"reflect"
	"testing"

	v1 "k8s.io/api/core/v1"
)

// vectorFile holds a pod with the word of secret in every field that is nobody's business, and what is sent of it; the
// Python side is held to give both the same scores (tests/contract/test_question_vectors.py).
const vectorFile, secret = "../../../tests/contract/data/question.json", "hunter2"

var update = flag.Bool("update", false, "write what is sent into the file of vectors")

type questionVector struct {
	About string          `json:"about"`
	Pod   json.RawMessage `json:"pod"`
	Sent  json.RawMessage `json:"sent"`
}

// TestAQuestionHoldsNothingButWhatScoresNeed asks as a scheduler does, and looks at every byte that arrives.
func TestAQuestionHoldsNothingButWhatScoresNeed(t *testing.T) {
	content, err := os.ReadFile(vectorFile)
	if err != nil {
		t.Fatal(err)
	}
	var vector questionVector
	var pod v1.Pod
	if err := json.Unmarshal(content, &vector); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(vector.Pod, &pod); err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(vector.Pod, []byte(secret)) {
		t.Fatal("the pod has no secrets")
	}
	nodes := nodesNamed("a1", "b2")
	var body []byte
	client := asking(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ = io.ReadAll(r.Body)
		_ = json.NewEncoder(w).Encode(map[string]any{"nodeSet": "n", "scores": []int{1, 2}, "neutral": ""})
	}, &nodes)
	if err := client.Scores(t.Context(), &pod, nodes, make([]int64, 2)); err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(body, []byte(secret)) {
		t.Errorf("the question gives the pod's secrets away: %s", body)
	}
	var asked struct{ Pod json.RawMessage }
	if err := json.Unmarshal(body, &asked); err != nil {
		t.Fatal(err)
	}
	if *update {
		vector.Sent = asked.Pod
		written, err := json.MarshalIndent(vector, "", " ")
		if err == nil {
			err = os.WriteFile(vectorFile, append(written, '\n'), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
		return
	}
	var sent, want any
	if err := json.Unmarshal(asked.Pod, &sent); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(vector.Sent, &want); err != nil || !reflect.DeepEqual(sent, want) {
		t.Errorf("%s is sent; want %s (go test ./remote -update, and look at what changes)", asked.Pod, vector.Sent)
	}
}
