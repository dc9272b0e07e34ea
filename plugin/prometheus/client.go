package prometheus

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

const (
	queryPath   = "/api/v1/query"
	connections = 4
	said        = 200 // bytes of somebody else's words in an error
	mostFile    = 1 << 20
)

// client asks one Prometheus.
type client struct {
	server Server
	url    string
	http   *http.Client
	ca     []byte // that http was made with
	token  string
}

func newClient(server Server) *client {
	return &client{server: server, url: strings.TrimRight(server.URL, "/") + queryPath}
}

// refresh reads the files, before a round of questions.
func (c *client) refresh() error {
	var ca, token []byte
	var err error
	if c.server.CAFile != "" {
		if ca, err = readFile(c.server.CAFile, mostFile); err != nil {
			return fmt.Errorf("prometheus.caFile: %s: %w", c.server.CAFile, err)
		}
	}
	if c.server.TokenFile != "" {
		if token, err = readFile(c.server.TokenFile, mostFile); err != nil {
			return fmt.Errorf("prometheus.tokenFile: %s: %w", c.server.TokenFile, err)
		}
	}
	c.token = string(bytes.TrimSpace(token))
	if c.http != nil && bytes.Equal(ca, c.ca) {
		return nil
	}
	secured := &tls.Config{MinVersion: tls.VersionTLS12}
	if c.server.CAFile != "" {
		secured.RootCAs = x509.NewCertPool()
		if !secured.RootCAs.AppendCertsFromPEM(ca) {
			return fmt.Errorf("prometheus.caFile: %s: holds no certificate in PEM", c.server.CAFile)
		}
	}
	c.close()
	c.ca = ca
	c.http = &http.Client{
		Timeout: seconds(c.server.TimeoutSeconds),
		Transport: &http.Transport{
			Proxy: http.ProxyFromEnvironment, TLSClientConfig: secured, MaxConnsPerHost: connections,
			MaxIdleConnsPerHost: connections, IdleConnTimeout: 90 * time.Second,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return nil
}

func (c *client) close() {
	if c.http != nil {
		c.http.CloseIdleConnections()
	}
}

// series is one of an answer: its labels, when it was evaluated (seconds since 1970, by Prometheus' clock), its value.
type series struct {
	labels map[string]string
	time   float64
	value  float64
}

// ask is the instant vector that a query evaluates to now. Values may be NaN or infinite. The error is one line.
func (c *client) ask(ctx context.Context, query string) ([]series, error) {
	form := strings.NewReader(url.Values{"query": {query}}.Encode())
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, form)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	if c.token != "" {
		request.Header.Set("Authorization", "Bearer "+c.token)
	}
	answer, err := c.http.Do(request)
	if err != nil {
		return nil, c.unreachable(err)
	}
	defer func() { _ = answer.Body.Close() }()
	content, err := io.ReadAll(io.LimitReader(answer.Body, c.server.MaxBodyBytes+1))
	switch {
	case err != nil:
		return nil, c.unreachable(err)
	case int64(len(content)) > c.server.MaxBodyBytes:
		return nil, fmt.Errorf("%s: the answer is larger than %d bytes", c.url, c.server.MaxBodyBytes)
	}
	found, err := decode(content)
	if err != nil {
		return nil, fmt.Errorf("%s: %w (HTTP %d)", c.url, err, answer.StatusCode)
	}
	return found, nil
}

func (c *client) unreachable(err error) error {
	var wrapped *url.Error
	if errors.As(err, &wrapped) {
		if wrapped.Timeout() {
			return fmt.Errorf("%s cannot be reached: no answer within %g s", c.url, c.server.TimeoutSeconds)
		}
		err = wrapped.Err
	}
	return fmt.Errorf("%s cannot be reached: %w", c.url, err)
}

var errStrange = errors.New("does not answer as Prometheus does")

// element is one series of a vector.
type element struct {
	Metric map[string]string `json:"metric"`
	Value  []json.RawMessage `json:"value"`
}

// decode is the instant vector of an answer.
func decode(content []byte) ([]series, error) {
	var answer struct {
		Status string `json:"status"`
		Error  string `json:"error"`
		Data   *struct {
			ResultType string          `json:"resultType"`
			Result     json.RawMessage `json:"result"`
		} `json:"data"`
	}
	if json.Unmarshal(content, &answer) != nil {
		return nil, errStrange
	}
	switch {
	case answer.Status != "success" && answer.Error != "":
		return nil, errors.New(short(answer.Error))
	case answer.Status != "success" || answer.Data == nil:
		return nil, errStrange
	case answer.Data.ResultType != "vector":
		return nil, fmt.Errorf("the query gives %s; an instant vector is right", short(answer.Data.ResultType))
	}
	var elements []element
	if json.Unmarshal(answer.Data.Result, &elements) != nil {
		return nil, errStrange
	}
	found := make([]series, len(elements))
	for i, each := range elements {
		var at float64
		var text string
		if len(each.Value) != 2 || json.Unmarshal(each.Value[0], &at) != nil || json.Unmarshal(each.Value[1], &text) != nil {
			return nil, errStrange
		}
		value, err := strconv.ParseFloat(text, 64)
		if err != nil && !errors.Is(err, strconv.ErrRange) {
			return nil, errStrange
		}
		found[i] = series{each.Metric, at, value}
	}
	return found, nil
}

func short(text string) string {
	if len(text) > said {
		return fmt.Sprintf("%q...", text[:said])
	}
	return fmt.Sprintf("%q", text)
}
