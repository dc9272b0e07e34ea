package remote

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"

	"steersman.dev/plugin/internal/files"
)

const (
	dialTimeout    = time.Second
	idleTimeout    = 90 * time.Second
	connections    = 16
	maxHeaderBytes = 1 << 16
	maxMebibytes   = 1 // of a file
	keepAliveProbe = 15 * time.Second
)

// transport is a way to the service with the files as they were at some moment. It does not change.
type transport struct {
	client *http.Client
	header http.Header
	err    error // why there is no client
}

// reloadingClient holds the transport in use, which is made again when a file changes.
type reloadingClient struct {
	config  Config
	files   [][]byte // of the current transport; nil before there is one with a client
	current atomic.Pointer[transport]
	problem string // with the files at the last look
}

func newReloadingClient(config Config) *reloadingClient {
	r := &reloadingClient{config: config}
	r.refresh()
	return r
}

func (r *reloadingClient) reload(ctx context.Context, every time.Duration) {
	wait.UntilWithContext(ctx, func(context.Context) { r.refresh() }, every)
	if last := r.current.Load(); last.client != nil {
		last.client.CloseIdleConnections()
	}
}

// refresh opens a transport if files changed. With files that are of no use, the old one stays.
func (r *reloadingClient) refresh() {
	files, err := r.config.read()
	if err == nil && slices.EqualFunc(files, r.files, bytes.Equal) {
		r.problem = ""
		return
	}
	var opened *transport
	if err == nil {
		opened, err = r.config.open(files)
	}
	if err != nil {
		if r.problem != err.Error() {
			klog.ErrorS(err, "The files for the score service cannot be used; those from before stay in use, if any")
		}
		if r.problem = err.Error(); r.files == nil {
			r.current.Store(&transport{err: err})
		}
		return
	}
	r.problem, r.files = "", files
	if old := r.current.Swap(opened); old != nil && old.client != nil {
		klog.InfoS("The files for the score service were read again")
		old.client.CloseIdleConnections()
	}
}

// read returns the content of the token's file, the certificates of the authority, the certificate and its key.
func (c *Config) read() ([][]byte, error) {
	contents := make([][]byte, 4)
	for i, file := range [...]struct{ field, path string }{
		{"tokenFile", c.TokenFile}, {"caFile", c.CAFile}, {"certFile", c.CertFile}, {"keyFile", c.KeyFile},
	} {
		if file.path == "" {
			continue
		}
		var err error
		if contents[i], err = files.Read(file.path, maxMebibytes); err != nil {
			return nil, fmt.Errorf("%s: %s: %w", file.field, file.path, err)
		}
	}
	return contents, nil
}

func (c *Config) open(files [][]byte) (*transport, error) {
	header := http.Header{"Content-Type": {"application/json"}, "User-Agent": {"steersman-kube-scheduler"}}
	if c.TokenFile != "" {
		token := bytes.TrimSpace(files[0])
		if len(token) == 0 || bytes.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
			return nil, fmt.Errorf("tokenFile: %s: is empty or not a token; expected one line of letters, digits and signs", c.TokenFile)
		}
		header.Set("Authorization", "Bearer "+string(token))
	}
	secured := &tls.Config{MinVersion: tls.VersionTLS12}
	if c.CAFile != "" {
		secured.RootCAs = x509.NewCertPool()
		if !secured.RootCAs.AppendCertsFromPEM(files[1]) {
			return nil, fmt.Errorf("caFile: %s: holds no certificate in PEM", c.CAFile)
		}
	}
	if c.CertFile != "" {
		pair, err := tls.X509KeyPair(files[2], files[3])
		if err != nil {
			return nil, fmt.Errorf("certFile: %s: with %s is no usable certificate: %w", c.CertFile, c.KeyFile, err)
		}
		secured.Certificates = []tls.Certificate{pair}
	}
	dialer := net.Dialer{Timeout: dialTimeout, KeepAlive: keepAliveProbe}
	// No proxy: the service is a neighbour, and its deadline is short.
	roundTripper := &http.Transport{
		DialContext:            dialer.DialContext,
		TLSClientConfig:        secured,
		TLSHandshakeTimeout:    dialTimeout,
		MaxIdleConns:           connections,
		MaxIdleConnsPerHost:    connections,
		IdleConnTimeout:        idleTimeout,
		MaxResponseHeaderBytes: maxHeaderBytes,
		DisableCompression:     true,
	}
	// The token is for the service alone, so a redirection is an answer like any other that is not 200.
	stay := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &transport{client: &http.Client{Transport: roundTripper, CheckRedirect: stay}, header: header}, nil
}
