package steersman

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
)

func given(text string) *runtime.Unknown {
	return &runtime.Unknown{Raw: []byte(text), ContentType: runtime.ContentTypeJSON}
}

func TestArgs(t *testing.T) {
	found, err := parseArgs(given(`{"policyFile": "p.safetensors"}`))
	if err != nil || found.Mode != "native" || found.timeout != 50*time.Millisecond || found.open != 10*time.Second ||
		found.Breaker.Failures != 5 || found.Fallback != "neutral" {
		t.Errorf("%+v, %v", found, err)
	}
	found, err = parseArgs(given(`{"mode": "service", "endpoint": "http://127.0.0.1:5000", "timeout": "20ms",
		"breaker": {"failures": 2, "open": "1s"}, "fallback": "metrics", "telemetryFile": "t.yaml"}`))
	if err != nil || found.timeout != 20*time.Millisecond || found.open != time.Second || found.Breaker.Failures != 2 {
		t.Errorf("%+v, %v", found, err)
	}
	yaml := &runtime.Unknown{Raw: []byte("policy: best-fit\n"), ContentType: runtime.ContentTypeYAML}
	if found, err = parseArgs(yaml); err != nil || found.Policy != "best-fit" {
		t.Errorf("%+v, %v", found, err)
	}
}

func TestArgsThatMakeNoSense(t *testing.T) {
	for _, each := range []struct{ args, says string }{
		{``, "policyFile: is missing"},
		{`{}`, "policyFile: is missing"},
		{`{`, "unexpected"},
		{`[]`, "cannot unmarshal array"},
		{`{"policyfile": "p"}`, `unknown field "policyfile"`},
		{`{"policyFile": "p", "policyFile": "q"}`, `duplicate field "policyFile"`},
		{`{"policyFile": 1}`, "policyFile"},
		{`{"policyFile": "p", "timeout": 50}`, "timeout"},
		{`{"policyFile": "p", "timeout": "50"}`, `args.timeout: "50" is no duration`},
		{`{"policyFile": "p", "timeout": "0s"}`, "args.timeout: 0s is out of range; 1ms to 5s"},
		{`{"policyFile": "p", "timeout": "1h"}`, "args.timeout"},
		{`{"policyFile": "p", "mode": "both"}`, `args.mode: "both" is none; native, service or shadow`},
		{`{"policyFile": "p", "fallback": "luck"}`, `args.fallback: "luck"`},
		{`{"policyFile": "p", "fallback": "metrics"}`, "args.telemetryFile: is missing"},
		{`{"policyFile": "p", "breaker": {"failures": 0}}`, "args.breaker.failures: 0"},
		{`{"policyFile": "p", "breaker": {"open": "-1s"}}`, "args.breaker.open: -1s"},
		{`{"policyFile": "p", "breaker": {"close": "1s"}}`, `unknown field "breaker.close"`},
		{`{"policyFile": "p", "endpoint": "http://h:1"}`, "args.endpoint: is for the modes"},
		{`{"policyFile": "p", "tokenFile": "t"}`, "args.tokenFile"},
		{`{"mode": "service"}`, "args.endpoint: is missing"},
		{`{"mode": "service", "endpoint": "http://h:1", "policyFile": "p"}`, "args.policyFile, policy"},
		{`{"mode": "shadow"}`, "args.mode: shadow"},
		{`{"mode": "shadow", "endpoint": "http://h:1", "policy": "p"}`, "args.mode: shadow"},
	} {
		_, err := parseArgs(given(each.args))
		if err == nil || !strings.Contains(err.Error(), each.says) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, not %s", each.args, err, each.says)
		}
	}
	if _, err := parseArgs(&runtime.Unknown{}); err == nil {
		t.Error("no args at all are fine")
	}
}

func FuzzArgs(f *testing.F) {
	for _, seed := range []string{``, `{"policyFile": "p"}`, `{"mode": "shadow", "breaker": {"open": "1s"}}`, "mode: shadow", `{"timeout": 1e9}`} {
		f.Add([]byte(seed), true)
		f.Add([]byte(seed), false)
	}
	f.Fuzz(func(t *testing.T, content []byte, yaml bool) {
		raw := &runtime.Unknown{Raw: content, ContentType: runtime.ContentTypeJSON}
		if yaml {
			raw.ContentType = runtime.ContentTypeYAML
		}
		found, err := parseArgs(raw)
		switch {
		case err != nil && strings.Contains(err.Error(), "\n"):
			t.Errorf("%q is more than a line", err)
		case err == nil && (found.timeout <= 0 || found.open <= 0 || found.Breaker.Failures < 1):
			t.Errorf("%+v", found)
		}
	})
}
