// Package prometheus keeps what Prometheus measured of the nodes, with the age of every value.
//
// It asks in the background, so that no decision waits for it. Prometheus answers with the time of the question, so each
// feature has a second query for the time of the newest sample behind its value. The configuration file, its defaults
// and what values mean are those of steersman schedule and serve (src/steersman/telemetry/prometheus).
package prometheus

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// Features of nodes.
const (
	CPUUsed         = "cpu_used_percent"
	MemoryAvailable = "memory_available_bytes"
	FilesystemUsed  = "filesystem_used_percent"
	NetworkReceived = "network_received_bytes_per_second"
	Connections     = "tcp_connections"
	RunningPods     = "running_pods"
	Latency         = "latency_milliseconds" // of each group of users
)

// Features are the names of all.
var Features = []string{
	CPUUsed, MemoryAvailable, FilesystemUsed, NetworkReceived, Connections, RunningPods, Latency,
}

// What stands for a value that is too old or missing: the last one, whatever its age; the median of the other nodes'
// values; nothing.
const (
	whenLast    = "last"
	whenImpute  = "impute"
	whenNeutral = "neutral"
)

const (
	apiVersion = "steersman.dev/v1alpha1"
	kind       = "TelemetryConfiguration"
	mostConfig = 1 << 20
)

// Server says where Prometheus is.
type Server struct {
	URL            string  `json:"url"`
	TokenFile      string  `json:"tokenFile"` // holds a bearer token, read anew for every round of questions
	CAFile         string  `json:"caFile"`    // certificates that sign its own; "" for those of the system; likewise
	TimeoutSeconds float64 `json:"timeoutSeconds"`
	MaxBodyBytes   int64   `json:"maxBodyBytes"` // larger answers are refused
}

// Nodes says which node a series is of.
type Nodes struct {
	Label   string            `json:"label"`
	Pattern string            `json:"pattern"` // matches the label's whole value; the first group names the node
	Names   map[string]string `json:"names"`   // from what the group gave to the node's name, where it is not that
}

// Feature is what is asked for one feature of the nodes.
type Feature struct {
	Query         string  `json:"query"`         // "" turns it off
	SampledAt     string  `json:"sampledAt"`     // the time of the newest sample, in seconds since 1970
	WhenStale     string  `json:"whenStale"`     // last, impute or neutral
	MaxAgeSeconds float64 `json:"maxAgeSeconds"` // 0 for that of the configuration
	NodeLabel     string  `json:"nodeLabel"`     // if another one than that of Nodes
	UserLabel     string  `json:"userLabel"`     // of the latency: the label that names the users
}

// Assumptions are about what nobody measures.
type Assumptions struct {
	ServiceMilliseconds float64 `json:"serviceMilliseconds"` // that a request is served in on an idle node
	LinkBytesPerSecond  float64 `json:"linkBytesPerSecond"`  // of a node's network
	PodLinkShare        float64 `json:"podLinkShare"`        // the most that a pod takes of it until it is measured
}

// Configuration is everything that can be configured.
type Configuration struct {
	Prometheus     Server             `json:"prometheus"`
	RefreshSeconds float64            `json:"refreshSeconds"` // between two rounds of questions
	MaxAgeSeconds  float64            `json:"maxAgeSeconds"`  // the age from which a value is stale
	Nodes          Nodes              `json:"nodes"`
	Features       map[string]Feature `json:"-"`
	Assumptions    Assumptions        `json:"assumptions"`

	pattern *regexp.Regexp
}

// Defaults are the queries of reference C, and everything else that a file need not say.
func Defaults() *Configuration {
	const idle, receive = `node_cpu_seconds_total{mode="idle"}`, `node_network_receive_bytes_total{device!="lo"}`
	const available, size = `node_filesystem_avail_bytes{mountpoint="/"}`, `node_filesystem_size_bytes{mountpoint="/"}`
	return &Configuration{
		Prometheus:     Server{URL: "http://127.0.0.1:9090", TimeoutSeconds: 5, MaxBodyBytes: 64 << 20},
		RefreshSeconds: 15,
		MaxAgeSeconds:  120,
		Nodes:          Nodes{Label: "instance", Pattern: "(.+?)(?::[0-9]+)?"},
		Assumptions:    Assumptions{ServiceMilliseconds: 2, LinkBytesPerSecond: 125e6, PodLinkShare: 0.02},
		Features: map[string]Feature{
			CPUUsed: {
				Query:     "100 - avg by (instance) (irate(" + idle + "[1m])) * 100",
				SampledAt: "max by (instance) (timestamp(" + idle + "))",
				WhenStale: whenImpute,
			},
			MemoryAvailable: {
				Query:     "node_memory_MemAvailable_bytes",
				SampledAt: "timestamp(node_memory_MemAvailable_bytes)",
				WhenStale: whenImpute,
			},
			FilesystemUsed: {
				Query:     "100 - 100 * max by (instance) (" + available + " / " + size + ")",
				SampledAt: "max by (instance) (timestamp(" + available + "))",
				WhenStale: whenLast,
			},
			NetworkReceived: {
				Query:     "sum by (instance) (rate(" + receive + "[5m]))",
				SampledAt: "max by (instance) (timestamp(" + receive + "))",
				WhenStale: whenImpute,
			},
			Connections: {
				Query:     "node_netstat_Tcp_CurrEstab",
				SampledAt: "timestamp(node_netstat_Tcp_CurrEstab)",
				WhenStale: whenImpute,
			},
			RunningPods: {
				Query:     "count by (node) (kube_pod_info)",
				SampledAt: "max by (node) (timestamp(kube_pod_info))",
				WhenStale: whenLast,
				NodeLabel: "node",
			},
			Latency: {
				Query:     "steersman_probe_latency_milliseconds",
				SampledAt: "timestamp(steersman_probe_latency_milliseconds)",
				WhenStale: whenNeutral,
				UserLabel: "user",
			},
		},
	}
}

// Read is Parse of a file.
func Read(path string) (*Configuration, error) {
	content, err := readFile(path, mostConfig)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return Parse(path, content)
}

// Parse is the configuration that a YAML file holds, with defaults for what it does not say. The error is one line that
// names the file and the field.
func Parse(file string, content []byte) (*Configuration, error) {
	found, err := parse(content)
	if err != nil {
		return nil, fmt.Errorf("%s: %s", file, strings.Join(strings.Fields(err.Error()), " "))
	}
	return found, nil
}

func parse(content []byte) (*Configuration, error) {
	document, err := yaml.YAMLToJSONStrict(content)
	if err != nil {
		return nil, fmt.Errorf("is no YAML: %w", err)
	}
	found := Defaults()
	whole := struct {
		APIVersion string                    `json:"apiVersion"`
		Kind       string                    `json:"kind"`
		Features   map[string]map[string]any `json:"features"`
		*Configuration
	}{Configuration: found}
	if err := strict(document, &whole); err != nil {
		return nil, err
	}
	switch {
	case whole.APIVersion != apiVersion:
		return nil, fmt.Errorf("apiVersion: %s is right", apiVersion)
	case whole.Kind != kind:
		return nil, fmt.Errorf("kind: %s is right", kind)
	}
	for name, given := range whole.Features {
		if err := found.change(name, given); err != nil {
			return nil, fmt.Errorf("features.%s%w", name, err)
		}
	}
	return found, found.check()
}

func strict(content []byte, into any) error {
	problems, err := json.UnmarshalStrict(content, into)
	return errors.Join(append(problems, err)...)
}

// change puts what a file says about a feature over its default.
func (c *Configuration) change(name string, given map[string]any) error {
	feature, known := c.Features[name]
	if !known {
		return fmt.Errorf(": is unknown; %s are right", strings.Join(Features, ", "))
	}
	if query, there := given["query"].(string); there && query != "" {
		if sampled, _ := given["sampledAt"].(string); sampled == "" {
			return errors.New(".sampledAt: is missing; a query needs one for the time of its newest sample, " +
				"such as timestamp(metric)")
		}
	}
	content, err := yaml.Marshal(given)
	if err == nil {
		content, err = yaml.YAMLToJSONStrict(content)
	}
	if err == nil {
		err = strict(content, &feature)
	}
	if err != nil {
		return fmt.Errorf(": %w", err)
	}
	c.Features[name] = feature
	return nil
}

var address = regexp.MustCompile(`^https?://[^\s/?#]+(/[^\s?#]*)?$`)

// check is the first field that is out of range, and compiles the pattern.
func (c *Configuration) check() error {
	if !address.MatchString(c.Prometheus.URL) {
		return fmt.Errorf("prometheus.url: is %q; such as http://prometheus:9090 is right", c.Prometheus.URL)
	}
	ranges := []span{
		{"prometheus.timeoutSeconds", c.Prometheus.TimeoutSeconds, 0.1, 300},
		{"prometheus.maxBodyBytes", float64(c.Prometheus.MaxBodyBytes), 1 << 10, 1 << 30},
		{"refreshSeconds", c.RefreshSeconds, 0.1, 3600},
		{"maxAgeSeconds", c.MaxAgeSeconds, 1, 86_400},
		{"assumptions.serviceMilliseconds", c.Assumptions.ServiceMilliseconds, 0, 10_000},
		{"assumptions.linkBytesPerSecond", c.Assumptions.LinkBytesPerSecond, 1, 1e15},
		{"assumptions.podLinkShare", c.Assumptions.PodLinkShare, 0, 1},
	}
	for _, name := range Features {
		feature := c.Features[name]
		ranges = append(ranges, span{"features." + name + ".maxAgeSeconds", feature.MaxAgeSeconds, 0, 86_400})
		if !slices.Contains([]string{whenLast, whenImpute, whenNeutral}, feature.WhenStale) {
			return fmt.Errorf("features.%s.whenStale: is %q; last, impute or neutral is right", name, feature.WhenStale)
		}
		if feature.UserLabel != "" && name != Latency {
			return fmt.Errorf("features.%s.userLabel: is for %s alone", name, Latency)
		}
	}
	for _, each := range ranges {
		if !(each.low <= each.value && each.value <= each.high) {
			return fmt.Errorf("%s: is %g; %g to %g is right", each.field, each.value, each.low, each.high)
		}
	}
	pattern, err := regexp.Compile("^(?:" + c.Nodes.Pattern + ")$")
	switch {
	case err != nil:
		return fmt.Errorf("nodes.pattern: is no regular expression: %w", err)
	case pattern.NumSubexp() < 1:
		return errors.New("nodes.pattern: has no group; one that names the node is right, such as (.+?)(?::[0-9]+)?")
	}
	c.pattern = pattern
	return nil
}

type span struct {
	field            string
	value, low, high float64
}

// ageLimit is the age from which a feature's values are stale.
func (c *Configuration) ageLimit(feature string) time.Duration {
	limit := c.Features[feature].MaxAgeSeconds
	if limit == 0 {
		limit = c.MaxAgeSeconds
	}
	return seconds(limit)
}

// nodeOf is the node that a label's value names, "" if it does not match.
func (c *Configuration) nodeOf(text string) string {
	matched := c.pattern.FindStringSubmatch(text)
	if matched == nil {
		return ""
	}
	if name, there := c.Nodes.Names[matched[1]]; there {
		return name
	}
	return matched[1]
}

func seconds(count float64) time.Duration { return time.Duration(count * float64(time.Second)) }

// readFile is the content of a regular file of a size that makes sense.
func readFile(path string, most int64) ([]byte, error) {
	found, err := os.Stat(path)
	var content []byte
	switch {
	case err == nil && (!found.Mode().IsRegular() || found.Size() > most):
		return nil, fmt.Errorf("is no regular file of up to %d bytes", most)
	case err == nil:
		content, err = os.ReadFile(path)
	}
	var cause *os.PathError
	if errors.As(err, &cause) {
		return nil, fmt.Errorf("cannot be read: %w", cause.Err)
	}
	return content, err
}
