// Package remote asks a score service (steersman serve) for the scores of nodes, and which nodes keep a pod's latency
// limit.
//
// The service follows the cluster by itself, so a question is the pod and the names of the nodes that passed the
// filters: only these, because the service puts its choice alone at the top, and that must be a node that the pod can
// go to. Names are sent once; after that the version stands for them that the service gave them (NodeSets), as long as
// both remember it.
package remote

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"steersman.dev/plugin/internal/scoring"
)

const (
	scoresPath, limitsPath = "/v1/scores", "/v1/limits"
	// bytesOfScore and bytesOverhead bound an answer: a score and its comma with room for spaces, and the rest of it.
	bytesOfScore, bytesOverhead = 8, 1 << 12
	reloadInterval              = 10 * time.Second
)

// Config says where the service is, and how to be let in. Files are reloaded when they change.
type Config struct {
	Endpoint  string // URL of the service without a path of its own: http://127.0.0.1:5000
	TokenFile string // holds a bearer token; "" for none
	CAFile    string // certificates that the service's must be signed by; "" for those of the system
	CertFile  string // a certificate for the service to know us by; "" for none
	KeyFile   string // its key
}

// check returns the first field that is invalid, and why; nil if all are valid.
func (c *Config) check() error {
	where, err := url.Parse(c.Endpoint)
	switch {
	case err != nil || where.Host == "" || where.Scheme != "http" && where.Scheme != "https":
		return fmt.Errorf("endpoint: %q is not a URL; expected http://HOST:PORT or https://HOST:PORT", c.Endpoint)
	case where.User != nil || where.RawQuery != "" || where.Fragment != "":
		return fmt.Errorf("endpoint: %q holds more than an address; expected HOST:PORT alone", where.Redacted())
	case (c.CertFile == "") != (c.KeyFile == ""):
		return errors.New("certFile, keyFile: one is of no use without the other")
	case where.Scheme == "http" && (c.CAFile != "" || c.CertFile != ""):
		return errors.New("caFile, certFile: are for https; the endpoint is http")
	}
	return nil
}

// LimitKeys are the annotations that limit a pod's latency to its users, in milliseconds: ours, and Matranga's.
var LimitKeys = append([]string{"steersman.dev/latency-soft-constraint", "latencySoftConstraint"}, HardLimitKeys...)

// HardLimitKeys are those of hard limits.
var HardLimitKeys = []string{"steersman.dev/latency-hard-constraint", "latencyHardConstraint"}

// Limit is what a pod's hard limit of latency leaves.
type Limit struct {
	Nodes   []string // that keep it, of those that were asked about; nil: it restricts nothing
	Outcome string   // kept safely, kept, kept by no node, not measured; "" without a hard limit
	Ignored []string // what is wrong with annotations that are invalid
}

// Client asks a service. It is safe for concurrent use.
type Client struct {
	endpoint        string
	reloadingClient *reloadingClient
	nodes           snapshotNodes
}

var _ scoring.Source = (*Client)(nil)

// New returns a client that reads its files again until ctx is done. The error names the field that is invalid; a file
// that cannot be used is not one: the scores fail until it can be.
func New(ctx context.Context, config Config, snapshot scoring.Snapshot) (*Client, error) {
	if err := config.check(); err != nil {
		return nil, err
	}
	result := newReloadingClient(config)
	go result.reload(ctx, reloadInterval)
	endpoint := strings.TrimSuffix(config.Endpoint, "/")
	return &Client{endpoint: endpoint, reloadingClient: result, nodes: snapshotNodes{list: snapshot}}, nil
}

// Scores asks the service, see scoring.Source. The error is one line about what went wrong; a scoring.Error where the
// service says that it has no scores.
func (c *Client) Scores(ctx context.Context, pod *v1.Pod, nodes []fwk.NodeInfo, out []int64) error {
	answer, order, err := c.ask(ctx, scoresPath, pod, nodes, bytesOverhead+bytesOfScore*len(nodes))
	if err != nil {
		return err
	}
	if len(answer.Scores) != len(nodes) {
		return fmt.Errorf("the answer has %d scores for %d nodes", len(answer.Scores), len(nodes))
	}
	for i, score := range answer.Scores {
		out[order[i]] = score
	}
	return nil
}

// Limit asks the service which nodes keep the hard limit of a pod. The errors are those of Scores.
func (c *Client) Limit(ctx context.Context, pod *v1.Pod, nodes []fwk.NodeInfo) (*Limit, error) {
	answer, order, err := c.ask(ctx, limitsPath, pod, nodes, bytesOverhead+len(nodes))
	if err != nil {
		return nil, err
	}
	outcome := oneOf(answer.Outcome, "", "kept safely", "kept", "kept by no node", "not measured")
	limit := &Limit{Outcome: outcome, Ignored: answer.Ignored}
	if answer.Kept == nil {
		return limit, nil
	}
	if len(answer.Kept) != (len(nodes)+7)/8 {
		return nil, fmt.Errorf("kept: %d bytes are not a mask of %d nodes", len(answer.Kept), len(nodes))
	}
	for i, n := range order {
		if answer.Kept[i/8]&(1<<(i%8)) != 0 {
			limit.Nodes = append(limit.Nodes, nodes[n].Node().Name)
		}
	}
	if len(limit.Nodes) == 0 {
		return nil, errors.New("kept: leaves no node")
	}
	return limit, nil
}

// ask sends a question about a pod and nodes, and returns an answer of so many bytes at most, and to which of the nodes
// its parts belong.
func (c *Client) ask(
	ctx context.Context, path string, pod *v1.Pod, nodes []fwk.NodeInfo, most int,
) (*answer, []int, error) {
	for range 2 {
		asked, err := c.nodes.ask(nodes)
		if err != nil {
			return nil, nil, err
		}
		asked.Pod = stripPod(pod)
		body, err := json.Marshal(asked)
		if err != nil {
			return nil, nil, fmt.Errorf("the pod cannot be encoded: %w", err)
		}
		content, err := c.post(ctx, path, body, asked.NodeSet, most)
		if errors.Is(err, errUnknownSet) {
			c.nodes.setVersion(asked.list, "")
			continue // with the names
		}
		if err != nil {
			return nil, nil, err
		}
		decoded, err := decode(content, asked.NodeSet)
		if err == nil && asked.NodeSet == "" {
			c.nodes.setVersion(asked.list, decoded.NodeSet)
		}
		return decoded, asked.order, err
	}
	return nil, nil, errUnknownSet
}

var errUnknownSet = errors.New("the service does not know the version of the node set")

// post sends a body and returns the answer of so many bytes at most. version: that was sent instead of names, "": none
// was.
func (c *Client) post(ctx context.Context, path string, body []byte, version string, most int) ([]byte, error) {
	transport := c.reloadingClient.current.Load()
	if transport.err != nil {
		return nil, transport.err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, c.endpoint+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header = transport.header
	answer, err := transport.client.Do(request)
	if err != nil {
		return nil, requestError(ctx, err)
	}
	defer func() { _ = answer.Body.Close() }()
	content, err := io.ReadAll(io.LimitReader(answer.Body, int64(most)+1))
	switch {
	case err != nil:
		return nil, requestError(ctx, err)
	case answer.StatusCode == http.StatusNotFound && version != "":
		return nil, errUnknownSet
	case answer.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("the service answers with status %d: %s", answer.StatusCode, errorMessage(content))
	case len(content) > most:
		return nil, fmt.Errorf("the answer is longer than %d bytes, too long for this question", most)
	}
	return content, nil
}

// requestError returns an error of a request, short: the deadline is what matters where it is over.
func requestError(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("the service did not answer: %w", context.Cause(ctx))
	}
	var wrapped *url.Error
	if errors.As(err, &wrapped) {
		err = wrapped.Err
	}
	return fmt.Errorf("the service cannot be asked: %w", err)
}
