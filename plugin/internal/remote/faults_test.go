package remote

import (
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"steersman.dev/plugin/internal/scoring"
)

// TestFaults: whatever the service does, there is an error of one line within the deadline.
func TestFaults(t *testing.T) {
	says := func(body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, body) }
	}
	fails := func(status int, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { http.Error(w, body, status) }
	}
	scores := func(list string) http.HandlerFunc {
		return says(`{"policy": "p", "nodeSet": "v", "scores": ` + list + `, "neutral": ""}`)
	}
	for _, test := range []struct {
		name   string
		answer http.HandlerFunc
		want   string
	}{
		{"hangs", hang, "did not answer"},
		{"drips", drip, "did not answer"},
		{"hangs up", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, "cannot be asked: EOF"},
		{"closes mid-answer", closeEarly, "cannot be asked: unexpected EOF"},
		{"huge body", func(w http.ResponseWriter, _ *http.Request) { flood(w) }, "longer than"},
		{"huge header", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X", strings.Repeat("x", 2*maxHeaderBytes))
		}, "server response headers exceeded"},
		{"500", fails(500, "oh\n\x1b[31mno"), `status 500: "oh\n\x1b[31mno\n"`},
		{"500 with a reason", fails(500, `{"error": "no cluster"}`), `status 500: "no cluster"`},
		{"500 with many words", fails(500, strings.Repeat("x", 10_000)), `xxx"...`},
		{"401", fails(401, `{"error": "a bearer token is needed"}`), "status 401"},
		{"404 of another server", fails(404, "nothing here"), "status 404"},
		{"429", fails(429, ""), "status 429"},
		{"204", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(204) }, "status 204"},
		{"redirects", func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/other", http.StatusTemporaryRedirect)
		}, "status 307"},
		{"nothing", says(""), "malformed"},
		{"garbage", says("\x00\xff\x1b[31m garbage"), "malformed"},
		{"HTML", says("<html></html>"), "malformed"},
		{"half", says(`{"policy": "p", "nodeSet": "v", "scores": [1,`), "malformed"},
		{"more than one", says(`{"nodeSet": "v", "scores": [1, 2]} {}`), "malformed"},
		{"a list", says(`[1, 2]`), "malformed"},
		{"null", says(`null`), "names no version"},
		{"no scores", says(`{"nodeSet": "v"}`), "0 scores for 2 nodes"},
		{"no version", says(`{"scores": [1, 2]}`), "names no version"},
		{"by name", scores(`{"a1": 1, "b2": 2}`), "is no list"},
		{"other names", scores(`{"x": 1, "y": 2}`), "is no list"},
		{"too few", scores(`[1]`), "1 scores for 2 nodes"},
		{"too many", scores(`[1, 2, 3]`), "3 scores for 2 nodes"},
		{"NaN", scores(`[NaN, 1]`), "malformed"},
		{"Infinity", scores(`[1, -Infinity]`), "malformed"},
		{"null among them", scores(`[1, null]`), "scores[1]"},
		{"text", scores(`["1", 2]`), "scores[0]"},
		{"nested", scores(`[[1], 2]`), "scores[0]"},
		{"fraction", scores(`[1, 2.5]`), "scores[1]"},
		{"whole fraction", scores(`[1, 2.0]`), "scores[1]"},
		{"exponent", scores(`[1e1, 2]`), "scores[0]"},
		{"negative", scores(`[1, -1]`), "scores[1]"},
		{"too high", scores(`[101, 1]`), "scores[0]"},
		{"far too high", scores(`[1, 18446744073709551617]`), "scores[1]"},
		{"scores twice", says(`{"nodeSet": "v", "scores": [1, 2], "scores": [3, 4]}`), "duplicate field"},
		{"declines", says(`{"nodeSet": "v", "scores": [50, 50], "neutral": "stale"}`), "neutral scores: stale"},
		{"declines oddly", says(`{"nodeSet": "v", "scores": [50, 50], "neutral": "\u001b[31m"}`), "neutral scores: other"},
	} {
		t.Run(test.name, func(t *testing.T) {
			nodes := nodesNamed("a1", "b2")
			client := asking(t, test.answer, &nodes)
			timeout := deadline
			if test.want == "did not answer" {
				timeout = short
			}
			began := time.Now()
			_, err := scoresWithTimeout(t, timeout, client, nodes)
			if took := time.Since(began); took > 5*time.Second {
				t.Errorf("took %v", took)
			}
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Fatalf("%v", err)
			}
			if strings.ContainsFunc(err.Error(), func(r rune) bool { return r < ' ' || r > 0x7e }) || len(err.Error()) > 400 {
				t.Errorf("the error is not one plain line: %q", err)
			}
			var reason *scoring.Error
			if errors.As(err, &reason) != strings.HasPrefix(test.name, "declines") {
				t.Errorf("a reason: %v", err)
			}
		})
	}
}

// hang never answers. Without the body being read, a server does not see that its client went away.
func hang(_ http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	<-r.Context().Done()
}

// drip answers a byte at a time, without an end.
func drip(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	for r.Context().Err() == nil {
		_, _ = w.Write([]byte(" "))
		_ = http.NewResponseController(w).Flush()
		time.Sleep(time.Millisecond)
	}
}

func flood(w http.ResponseWriter) {
	brackets := []byte(strings.Repeat("[", 1<<16))
	for range 1 << 10 {
		if _, err := w.Write(brackets); err != nil {
			return
		}
	}
}

func closeEarly(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Length", "1000")
	_, _ = io.WriteString(w, `{"policy": "p"`)
}

func TestAnAnswerAboutOtherNodes(t *testing.T) {
	there, nodes := &service{}, nodesNamed("a1", "b2")
	client := asking(t, func(w http.ResponseWriter, r *http.Request) {
		if len(there.asked) == 0 {
			there.answer(w, r)
			return
		}
		_, _ = io.WriteString(w, `{"policy": "p", "nodeSet": "elsewhere", "scores": [1, 2], "neutral": ""}`)
	}, &nodes)
	if _, err := scoresOf(t, client, nodes); err != nil {
		t.Fatal(err)
	}
	if _, err := scoresOf(t, client, nodes); err == nil || !strings.Contains(err.Error(), "about other nodes") {
		t.Errorf("%v", err)
	}
}

func TestNobodyListens(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	_ = listener.Close()
	nodes := nodesNamed("a1")
	client, err := New(t.Context(), Config{Endpoint: "http://" + address}, snapshotOf(&nodes))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := scoresOf(t, client, nodes); err == nil || !strings.Contains(err.Error(), "connection refused") {
		t.Errorf("%v", err)
	}
}
