package prometheus

import (
	"context"
	"sync"

	"k8s.io/apimachinery/pkg/labels"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/klog/v2"
)

// started are the collectors at work in this process, by their configuration files.
var started = struct {
	mutex  sync.Mutex
	byFile map[string]*Collector
}{byFile: map[string]*Collector{}}

// Start is the collector of a configuration file, which asks until ctx is done: the same one for all plugins and profiles
// of the process that name the file. The error is one line that names the file and the field.
func Start(ctx context.Context, file string, nodes corelisters.NodeLister) (*Collector, error) {
	started.mutex.Lock()
	defer started.mutex.Unlock()
	if found := started.byFile[file]; found != nil {
		return found, nil
	}
	configuration, err := Read(file)
	if err != nil {
		return nil, err
	}
	made := New(configuration, func() []string { return names(nodes) })
	started.byFile[file] = made
	go func() {
		made.Run(ctx)
		started.mutex.Lock()
		defer started.mutex.Unlock()
		delete(started.byFile, file)
	}()
	return made, nil
}

func names(nodes corelisters.NodeLister) []string {
	all, err := nodes.List(labels.Everything())
	if err != nil {
		klog.ErrorS(err, "The nodes cannot be listed")
		return nil
	}
	found := make([]string, len(all))
	for i, node := range all {
		found[i] = node.Name
	}
	return found
}
