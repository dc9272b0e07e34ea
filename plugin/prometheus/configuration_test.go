package prometheus

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

const head = "apiVersion: steersman.dev/v1alpha1\nkind: TelemetryConfiguration\n"

func TestTheDocumentedFileHoldsTheDefaults(t *testing.T) {
	found, err := Read(filepath.Join("..", "..", "deploy", "prometheus", "telemetry.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	want := Defaults()
	want.Prometheus.URL = found.Prometheus.URL // the one thing that has to be said
	latency := want.Features[Latency]
	latency.MaxAgeSeconds = 120 // shown there, where it changes nothing
	want.Features[Latency] = latency
	found.pattern, want.Nodes.Names = nil, map[string]string{}
	if !reflect.DeepEqual(found, want) {
		t.Errorf("the file says\n%+v\nand not\n%+v", found, want)
	}
}

func TestAFileSaysWhatDiffers(t *testing.T) {
	found, err := Parse("f", []byte(head+`
prometheus: {url: "https://prometheus/path", timeoutSeconds: 1}
maxAgeSeconds: 60
nodes: {label: host, pattern: "(.*)[.]local", names: {a: worker-a}}
features:
  cpu_used_percent: {whenStale: last, maxAgeSeconds: 30}
  running_pods: {query: ""}
  tcp_connections: {query: conns, sampledAt: timestamp(conns)}
`))
	if err != nil {
		t.Fatal(err)
	}
	cpu, want := found.Features[CPUUsed], Defaults().Features[CPUUsed]
	if cpu.Query != want.Query || cpu.WhenStale != "last" || found.ageLimit(CPUUsed) != seconds(30) {
		t.Errorf("%+v", cpu)
	}
	if found.Features[RunningPods].Query != "" || found.Features[Connections].Query != "conns" {
		t.Errorf("%+v", found.Features)
	}
	if found.Prometheus.MaxBodyBytes != 64<<20 || found.ageLimit(Latency) != seconds(60) || found.RefreshSeconds != 15 {
		t.Errorf("%+v", found)
	}
	for text, node := range map[string]string{"a.local": "worker-a", "b.local": "b", "b": "", "x.local.net": ""} {
		if got := found.nodeOf(text); got != node {
			t.Errorf("%s is %q", text, got)
		}
	}
}

func TestNodesByDefault(t *testing.T) {
	found, err := Parse("f", []byte(head))
	if err != nil {
		t.Fatal(err)
	}
	for text, node := range map[string]string{"n1:9100": "n1", "n1": "n1", "[::1]:9100": "[::1]", "": "", "n1:x": "n1:x"} {
		if got := found.nodeOf(text); got != node {
			t.Errorf("%s is %q", text, got)
		}
	}
}

func TestFilesThatMakeNoSense(t *testing.T) {
	for _, test := range []struct{ content, want string }{
		{"", "apiVersion"},
		{"[]", "f: "},
		{"a: b: c", "is no YAML"},
		{"apiVersion: v1\nkind: TelemetryConfiguration", "apiVersion: steersman.dev/v1alpha1 is right"},
		{"apiVersion: steersman.dev/v1alpha1\nkind: Pod", "kind: TelemetryConfiguration is right"},
		{head + "refresh: 1", "refresh"},
		{head + "refreshSeconds: many", "refreshSeconds"},
		{head + "refreshSeconds: 0", "refreshSeconds: is 0; 0.1 to 3600 is right"},
		{head + "maxAgeSeconds: .nan", "f: "},
		{head + "maxAgeSeconds: 0", "maxAgeSeconds: is 0"},
		{head + "prometheus: {url: localhost:9090}", "prometheus.url"},
		{head + "prometheus: {url: \"http://host?x\"}", "prometheus.url"},
		{head + "prometheus: {maxBodyBytes: 1}", "prometheus.maxBodyBytes"},
		{head + "nodes: {pattern: \"(\"}", "nodes.pattern: is no regular expression"},
		{head + "nodes: {pattern: \".*\"}", "nodes.pattern: has no group"},
		{head + "features: {cpu: {}}", "features.cpu: is unknown"},
		{head + "features: {cpu_used_percent: {query: x}}", "features.cpu_used_percent.sampledAt: is missing"},
		{head + "features: {cpu_used_percent: {quarry: x}}", "features.cpu_used_percent"},
		{head + "features: {cpu_used_percent: {whenStale: never}}", "features.cpu_used_percent.whenStale"},
		{head + "features: {cpu_used_percent: {userLabel: user}}", "features.cpu_used_percent.userLabel"},
		{head + "features: {cpu_used_percent: {maxAgeSeconds: -1}}", "features.cpu_used_percent.maxAgeSeconds"},
		{head + "assumptions: {podLinkShare: 2}", "assumptions.podLinkShare"},
		{head + "kind: TelemetryConfiguration", "f: "}, // twice
	} {
		_, err := Parse("f", []byte(test.content))
		if err == nil || !strings.HasPrefix(err.Error(), "f: ") || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%q: %v", test.content, err)
		} else if strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: more than a line: %v", test.content, err)
		}
	}
}

func TestFilesThatCannotBeRead(t *testing.T) {
	folder := t.TempDir()
	for _, path := range []string{folder, filepath.Join(folder, "none")} {
		if _, err := Read(path); err == nil || !strings.HasPrefix(err.Error(), path+": ") {
			t.Errorf("%v", err)
		}
	}
	path := filepath.Join(folder, "telemetry.yaml")
	if err := os.WriteFile(path, []byte(head), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(path); err != nil {
		t.Error(err)
	}
}
