package remote

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// authority signs certificates.
type authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
	pem         []byte
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, IsCA: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	key := newKey(t)
	content, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	made, err := x509.ParseCertificate(content)
	if err != nil {
		t.Fatal(err)
	}
	return &authority{made, key, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: content})}
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// sign is a certificate for 127.0.0.1 and its key, until a time.
func (a *authority) sign(t *testing.T, name string, until time.Time) (certificate, key []byte) {
	t.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: until,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}
	private := newKey(t)
	content, err := x509.CreateCertificate(rand.Reader, template, a.certificate, &private.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	written, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: content}),
		pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: written})
}

// secured is a service that requests certificates of its authority and a token.
func secured(t *testing.T, trusted *authority, token string) *httptest.Server {
	t.Helper()
	there := &service{}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+token {
			http.Error(w, `{"error": "a bearer token is needed"}`, http.StatusUnauthorized)
			return
		}
		there.answer(w, r)
	}))
	pair, err := tls.X509KeyPair(trusted.sign(t, "service", time.Now().Add(time.Hour)))
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(trusted.certificate)
	server.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool}
	server.Config.ErrorLog = nil
	server.StartTLS()
	t.Cleanup(server.Close)
	return server
}

func write(t *testing.T, path string, content []byte) {
	t.Helper()
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
}

func ask(t *testing.T, endpoint string, d *reloadingClient) error {
	t.Helper()
	nodes := nodesNamed("a1")
	client := &Client{endpoint: endpoint, reloadingClient: d, nodes: snapshotNodes{list: snapshotOf(&nodes)}}
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	return client.Scores(ctx, somePod(), nodes, make([]int64, 1))
}

// TestFilesAreReadAnew goes through what files may hold, one change at a time, with one pair of doors.
func TestFilesAreReadAnew(t *testing.T) {
	trusted, stranger := newAuthority(t), newAuthority(t)
	server := secured(t, trusted, "secret")
	folder := t.TempDir()
	config := Config{
		Endpoint: server.URL, TokenFile: filepath.Join(folder, "token"), CAFile: filepath.Join(folder, "ca"),
		CertFile: filepath.Join(folder, "cert"), KeyFile: filepath.Join(folder, "key"),
	}
	d := newReloadingClient(config)
	certificate, key := trusted.sign(t, "scheduler", time.Now().Add(time.Hour))
	expired, expiredKey := trusted.sign(t, "scheduler", time.Now().Add(-time.Hour))
	strange, strangeKey := stranger.sign(t, "scheduler", time.Now().Add(time.Hour))
	for _, step := range []struct {
		name  string
		files map[string][]byte
		want  string // of the error; "" for none
	}{
		{"no files", nil, "tokenFile: " + config.TokenFile + ": cannot be read: no such file"},
		{"a token", map[string][]byte{"token": []byte("wrong\n")}, "caFile: " + config.CAFile + ": cannot be read"},
		{"all", map[string][]byte{"ca": trusted.pem, "cert": certificate, "key": key}, "status 401"},
		{"the right token", map[string][]byte{"token": []byte("secret\n")}, ""},
		{"another authority", map[string][]byte{"ca": stranger.pem}, "certificate signed by unknown authority"},
		{"the right one", map[string][]byte{"ca": trusted.pem}, ""},
		{"a truncated file changes nothing", map[string][]byte{"cert": certificate[:100]}, ""},
		{"nor one of another key", map[string][]byte{"cert": expired}, ""},
		{"an expired certificate", map[string][]byte{"key": expiredKey}, "certificate"},
		{"a stranger's", map[string][]byte{"cert": strange, "key": strangeKey}, "certificate"},
		{"a good one", map[string][]byte{"cert": certificate, "key": key}, ""},
		{"an empty token changes nothing", map[string][]byte{"token": []byte(" \n")}, ""},
		{"nor one of two lines", map[string][]byte{"token": []byte("a\r\nX-Evil: b")}, ""},
		{"no authority", map[string][]byte{"token": []byte("secret"), "ca": []byte("none")}, ""},
	} {
		for name, content := range step.files {
			write(t, filepath.Join(folder, name), content)
		}
		d.refresh()
		err := ask(t, server.URL, d)
		if step.want == "" && err != nil || step.want != "" && (err == nil || !strings.Contains(err.Error(), step.want)) {
			t.Errorf("%s: %v", step.name, err)
		}
		if err != nil && strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: more than a line: %v", step.name, err)
		}
	}
}

func TestFilesAreLookedAtInTheBackground(t *testing.T) {
	there := &service{}
	server := httptest.NewServer(http.HandlerFunc(there.answer))
	defer server.Close()
	token := filepath.Join(t.TempDir(), "token")
	d := newReloadingClient(Config{Endpoint: server.URL, TokenFile: token})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { d.reload(ctx, time.Millisecond); close(ended) }()
	if err := ask(t, server.URL, d); err == nil {
		t.Error("asked without a token")
	}
	write(t, token, []byte("secret"))
	end := time.Now().Add(deadline)
	for ask(t, server.URL, d) != nil {
		if time.Now().After(end) {
			t.Fatal("the file is not read")
		}
		time.Sleep(time.Millisecond)
	}
	cancel()
	<-ended
}
