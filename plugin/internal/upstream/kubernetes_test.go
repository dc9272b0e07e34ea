//go:build !before1.37

// Package upstream writes down what the newest supported minor of Kubernetes has, for tests in Python: the fields of Pod and Node,
// and kube-scheduler's default plugins.
package upstream

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/component-helpers/nodedeclaredfeatures/features"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/latest"
)

var update = flag.Bool("update", false, "write the file instead of comparing with it")

const file = "../../../tests/data/kubernetes.json"

// scalars are structs that JSON writes as a string or number.
var scalars = map[reflect.Type]bool{
	reflect.TypeFor[time.Time]():          true,
	reflect.TypeFor[metav1.Time]():        true,
	reflect.TypeFor[metav1.MicroTime]():   true,
	reflect.TypeFor[metav1.FieldsV1]():    true,
	reflect.TypeFor[resource.Quantity]():  true,
	reflect.TypeFor[intstr.IntOrString](): true,
}

type plugin struct {
	Name   string
	Weight int32
}

type fields map[string]map[string]string

// add notes the fields of a struct and of the structs in it: name in JSON and, for structs, name of the type.
func (f fields) add(of reflect.Type) {
	if _, known := f[of.Name()]; known {
		return
	}
	own := map[string]string{}
	f[of.Name()] = own
	f.collect(of, own)
}

func (f fields) collect(of reflect.Type, own map[string]string) {
	for i := range of.NumField() {
		field := of.Field(i)
		name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		if name == "-" {
			continue
		}
		element := field.Type
		for element.Kind() == reflect.Pointer || element.Kind() == reflect.Slice || element.Kind() == reflect.Map {
			element = element.Elem()
		}
		isStruct := element.Kind() == reflect.Struct && !scalars[element]
		switch {
		case name == "" && (strings.Contains(options, "inline") || field.Anonymous):
			f.collect(element, own)
		case isStruct:
			own[name] = element.Name()
			f.add(element)
		default:
			own[name] = ""
		}
	}
}

// TestKubernetesIsWhatTheTableIsAbout fails with every minor that adds a field, a default plugin or a feature that nodes
// declare; `go test ./internal/upstream -update` takes it over, and the tests in Python then want it in their table.
func TestKubernetesIsWhatTheTableIsAbout(t *testing.T) {
	types := fields{}
	types.add(reflect.TypeFor[v1.Pod]())
	types.add(reflect.TypeFor[v1.Node]())
	configuration, err := latest.Default()
	if err != nil {
		t.Fatal(err)
	}
	plugins := []plugin{}
	for _, each := range configuration.Profiles[0].Plugins.MultiPoint.Enabled {
		plugins = append(plugins, plugin{each.Name, each.Weight})
	}
	declared := []string{}
	for _, each := range features.AllFeatures {
		declared = append(declared, each.Name())
	}
	got, err := json.MarshalIndent(map[string]any{"types": types, "plugins": plugins, "features": declared}, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	got = append(got, '\n')
	if *update {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s is not what this minor has; run `go test ./internal/upstream -update` and read the diff", file)
	}
}
