package explain

import (
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/informers/apps"
	"k8s.io/client-go/informers/core"
	"k8s.io/client-go/informers/internalinterfaces"
	"k8s.io/client-go/informers/policy"
	"k8s.io/client-go/informers/resource"
	"k8s.io/client-go/informers/scheduling"
	"k8s.io/client-go/informers/storage"
	"k8s.io/client-go/tools/cache"
)

// informerFactory hands out informers that hold what add gave them. Unlike those that list and watch, they call their
// handlers before add returns.
type informerFactory struct {
	informers.SharedInformerFactory
	known map[reflect.Type]*informer
}

func newInformerFactory() *informerFactory {
	return &informerFactory{
		SharedInformerFactory: informers.NewSharedInformerFactory(nil, 0),
		known:                 map[reflect.Type]*informer{},
	}
}

func (f *informerFactory) of(kind runtime.Object) *informer {
	key := reflect.TypeOf(kind)
	if _, found := f.known[key]; !found {
		byNamespace := cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}
		f.known[key] = &informer{indexer: cache.NewIndexer(cache.MetaNamespaceKeyFunc, byNamespace)}
	}
	return f.known[key]
}

func (f *informerFactory) add(object runtime.Object) error {
	return f.of(object).add(object)
}

func (f *informerFactory) InformerFor(kind runtime.Object, _ internalinterfaces.NewInformerFunc) cache.SharedIndexInformer {
	return f.of(kind)
}

// The groups that kube-scheduler reads.

func (f *informerFactory) Apps() apps.Interface             { return apps.New(f, "", nil) }
func (f *informerFactory) Core() core.Interface             { return core.New(f, "", nil) }
func (f *informerFactory) Policy() policy.Interface         { return policy.New(f, "", nil) }
func (f *informerFactory) Resource() resource.Interface     { return resource.New(f, "", nil) }
func (f *informerFactory) Scheduling() scheduling.Interface { return scheduling.New(f, "", nil) }
func (f *informerFactory) Storage() storage.Interface       { return storage.New(f, "", nil) }

// informer implements what kube-scheduler calls of a SharedIndexInformer.
type informer struct {
	cache.SharedIndexInformer
	indexer  cache.Indexer
	handlers []cache.ResourceEventHandler
}

func (i *informer) add(object any) error {
	if err := i.indexer.Add(object); err != nil {
		return err
	}
	for _, handler := range i.handlers {
		handler.OnAdd(object, true)
	}
	return nil
}

func (i *informer) AddEventHandler(handler cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	i.handlers = append(i.handlers, handler)
	for _, object := range i.indexer.List() {
		handler.OnAdd(object, true)
	}
	return i, nil
}

func (i *informer) AddEventHandlerWithOptions(handler cache.ResourceEventHandler, _ cache.HandlerOptions) (cache.ResourceEventHandlerRegistration, error) {
	return i.AddEventHandler(handler)
}

func (i *informer) AddIndexers(indexers cache.Indexers) error { return i.indexer.AddIndexers(indexers) }
func (i *informer) GetIndexer() cache.Indexer                 { return sorted{i.indexer} }
func (i *informer) GetStore() cache.Store                     { return i.indexer }
func (i *informer) HasSynced() bool                           { return true }

// sorted lists objects by namespace and name, so that the same question has the same answer.
type sorted struct{ cache.Indexer }

func (s sorted) List() []any {
	keys := s.ListKeys()
	slices.Sort(keys)
	objects := make([]any, 0, len(keys))
	for _, key := range keys {
		if object, exists, err := s.GetByKey(key); exists && err == nil {
			objects = append(objects, object)
		}
	}
	return objects
}
