package remote

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	"k8s.io/klog/v2"
)

const (
	dialTimeout    = time.Second
	idleTimeout    = 90 * time.Second
	connections    = 16
	maxHeaderBytes = 1 << 16
	maxFileBytes   = 1 << 20
	userAgent      = "steersman-kube-scheduler"
	contentType    = "application/json"
	minTLS         = tls.VersionTLS12
	keepAliveProbe = 15 * time.Second
)

// transport is a way to the service with the files as they were at some moment. It does not change.
type transport struct {
	client *http.Client
	header http.Header
}

// reloadingClient is the door in use, made again when a file changes.
type reloadingClient struct {
	config    Config
	files     [][]byte // of the current transport; nil before there is one
	current   atomic.Pointer[transport]
	lastError atomic.Pointer[error] // why there is none
}

// newReloadingClient opens the first one.
func newReloadingClient(config Config) *reloadingClient {
	d := &reloadingClient{config: config}
	d.refresh()
	return d
}

// now returns the transport in use, or why there is none.
func (r *reloadingClient) now() (*transport, error) {
	if open := r.current.Load(); open != nil {
		return open, nil
	}
	return nil, *r.lastError.Load()
}

// keep looks at the files again and again until ctx is done.
func (r *reloadingClient) keep(ctx context.Context, every time.Duration) {
	defer func() {
		if open := r.current.Load(); open != nil {
			open.client.CloseIdleConnections()
		}
	}()
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			r.refresh()
		}
	}
}

// refresh opens a new door if files changed. With files that are of no use, the old one stays.
func (r *reloadingClient) refresh() {
	files, err := r.config.read()
	if err == nil && r.current.Load() != nil && same(files, r.files) {
		r.lastError.Store(nil)
		return
	}
	var opened *transport
	if err == nil {
		opened, err = r.config.open(files)
	}
	if err != nil {
		before := r.lastError.Swap(&err)
		if before == nil || (*before).Error() != err.Error() {
			klog.ErrorS(err, "The files for the score service cannot be used; those from before stay in use, if any")
		}
		return
	}
	r.lastError.Store(nil)
	r.files = files
	if old := r.current.Swap(opened); old != nil {
		klog.InfoS("The files for the score service were read again")
		old.client.CloseIdleConnections()
	}
}

func same(a, b [][]byte) bool {
	for i := range a {
		if !bytes.Equal(a[i], b[i]) {
			return false
		}
	}
	return true
}

// read returns the content of the token's file, the certificates of the authority, the certificate and its key.
func (c *Config) read() ([][]byte, error) {
	files := make([][]byte, 0, 4)
	for _, file := range []struct{ field, path string }{
		{"tokenFile", c.TokenFile}, {"caFile", c.CAFile}, {"certFile", c.CertFile}, {"keyFile", c.KeyFile},
	} {
		var content []byte
		if file.path != "" {
			var err error
			if content, err = readFile(file.path); err != nil {
				return nil, fmt.Errorf("%s: %s: %w", file.field, file.path, err)
			}
		}
		files = append(files, content)
	}
	return files, nil
}

func readFile(path string) ([]byte, error) {
	result, err := os.Stat(path)
	if err == nil && (!result.Mode().IsRegular() || result.Size() > maxFileBytes) {
		return nil, errors.New("is no regular file of up to 1 MiB")
	}
	var content []byte
	if err == nil {
		content, err = os.ReadFile(path)
	}
	var cause *fs.PathError
	if errors.As(err, &cause) {
		return nil, fmt.Errorf("cannot be read: %w", cause.Err)
	}
	return content, err
}

// open creates a transport from the content of the files.
func (c *Config) open(files [][]byte) (*transport, error) {
	header := http.Header{"Content-Type": {contentType}, "User-Agent": {userAgent}}
	if c.TokenFile != "" {
		token := bytes.TrimSpace(files[0])
		if len(token) == 0 || bytes.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
			return nil, fmt.Errorf("tokenFile: %s: is empty or not a token; expected one line of letters, digits and signs", c.TokenFile)
		}
		header.Set("Authorization", "Bearer "+string(token))
	}
	secured := &tls.Config{MinVersion: minTLS}
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
	return &transport{&http.Client{Transport: roundTripper, CheckRedirect: stay}, header}, nil
}
