package prometheus

import (
	"context"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
)

func TestPluginsShareTheCollectorOfAFile(t *testing.T) {
	there := &server{}
	web := httptest.NewServer(there)
	defer web.Close()
	there.set("node_netstat_Tcp_CurrEstab", at("a", 7))
	there.set("timestamp(node_netstat_Tcp_CurrEstab)", at("a", evaluated))
	file := filepath.Join(t.TempDir(), "telemetry.yaml")
	content := head + "prometheus: {url: \"" + web.URL + "\"}\nrefreshSeconds: 0.1\n"
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	store := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	if err := store.Add(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	one, err := Start(ctx, file, corelisters.NewNodeLister(store))
	if err != nil {
		t.Fatal(err)
	}
	if other, err := Start(ctx, file, corelisters.NewNodeLister(store)); err != nil || other != one {
		t.Errorf("%p and %p, %v", one, other, err)
	}
	eventually(t, func() bool { return one.Readings().Column(Connections, "", []string{"a"}, time.Now()).Values[0] == 7 })
	cancel()
	eventually(t, func() bool {
		started.mutex.Lock()
		defer started.mutex.Unlock()
		return started.byFile[file] == nil
	})
	if _, err := Start(t.Context(), filepath.Join(t.TempDir(), "none"), nil); err == nil {
		t.Error("there is no file")
	}
}

func eventually(t *testing.T, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("waited in vain")
		}
	}
}
