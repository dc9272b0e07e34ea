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
	args, err := parseArgs(given(`{"policyFile": "p.safetensors"}`))
	if err != nil || args.Mode != "native" || args.timeout != 50*time.Millisecond || args.open != 10*time.Second ||
		args.Breaker.Failures != 5 {
		t.Errorf("%+v, %v", args, err)
	}
	args, err = parseArgs(given(`{"mode": "service", "endpoint": "http://127.0.0.1:5000", "timeout": "20ms",
		"breaker": {"failures": 2, "open": "1s"}}`))
	if err != nil || args.timeout != 20*time.Millisecond || args.open != time.Second || args.Breaker.Failures != 2 {
		t.Errorf("%+v, %v", args, err)
	}
	if args, err = parseArgs(given(`{"policy": "best-fit", "logScores": true}`)); err != nil || !args.LogScores {
		t.Errorf("%+v, %v", args, err)
	}
	yaml := &runtime.Unknown{Raw: []byte("policy: best-fit\n"), ContentType: runtime.ContentTypeYAML}
	if args, err = parseArgs(yaml); err != nil || args.Policy != "best-fit" {
		t.Errorf("%+v, %v", args, err)
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
		{`{"policyFile": "p", "timeout": "50"}`, `args.timeout: "50" is not a duration`},
		{`{"policyFile": "p", "timeout": "0s"}`, "args.timeout: 0s is out of range; expected 1ms to 5s"},
		{`{"policyFile": "p", "timeout": "1h"}`, "args.timeout"},
		{`{"policyFile": "p", "mode": "both"}`, `args.mode: "both" is unknown; expected native, service or shadow`},
		{`{"policyFile": "p", "telemetryFile": "t"}`, `unknown field "telemetryFile"`},
		{`{"policyFile": "p", "breaker": {"failures": 0}}`, "args.breaker.failures: 0"},
		{`{"policyFile": "p", "breaker": {"open": "-1s"}}`, "args.breaker.open: -1s"},
		{`{"policyFile": "p", "breaker": {"close": "1s"}}`, `unknown field "breaker.close"`},
		{`{"policyFile": "p", "logScores": "yes"}`, "logScores"},
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
		args, err := parseArgs(raw)
		switch {
		case err != nil && strings.Contains(err.Error(), "\n"):
			t.Errorf("%q is more than a line", err)
		case err == nil && (args.timeout <= 0 || args.open <= 0 || args.Breaker.Failures < 1):
			t.Errorf("%+v", args)
		}
	})
}
