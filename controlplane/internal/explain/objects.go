package explain

import (
	"context"
	"encoding/json"
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	_ "k8s.io/kubernetes/pkg/apis/apps/install"
	api "k8s.io/kubernetes/pkg/apis/core"
	_ "k8s.io/kubernetes/pkg/apis/core/install"
	"k8s.io/kubernetes/pkg/apis/core/validation"
	_ "k8s.io/kubernetes/pkg/apis/policy/install"
	_ "k8s.io/kubernetes/pkg/apis/resource/install"
	_ "k8s.io/kubernetes/pkg/apis/scheduling/install"
	_ "k8s.io/kubernetes/pkg/apis/storage/install"
	"k8s.io/kubernetes/pkg/registry/core/pod"
)

var decoder = serializer.NewCodecFactory(legacyscheme.Scheme, serializer.EnableStrict).UniversalDeserializer()

// admitted returns an object as kube-apiserver stores it: with defaults, without fields whose feature is off, and
// refused if it is not valid. It keeps its status, and a pod without a uid gets one.
func admitted(raw json.RawMessage) (runtime.Object, error) {
	object, _, err := decoder.Decode(raw, nil, nil)
	if err != nil {
		return nil, err
	}
	legacyscheme.Scheme.Default(object)
	var problems field.ErrorList
	switch object := object.(type) {
	case *v1.Pod:
		problems, err = admitPod(object)
	case *v1.Node:
		problems, err = validated(object, &api.Node{}, validation.ValidateNode)
	case *v1.PersistentVolume:
		problems, err = validated(object, &api.PersistentVolume{}, func(volume *api.PersistentVolume) field.ErrorList {
			return validation.ValidatePersistentVolume(volume, validation.ValidationOptionsForPersistentVolume(volume, nil))
		})
	case *v1.PersistentVolumeClaim:
		problems, err = validated(object, &api.PersistentVolumeClaim{}, func(claim *api.PersistentVolumeClaim) field.ErrorList {
			return validation.ValidatePersistentVolumeClaim(claim, validation.ValidationOptionsForPersistentVolumeClaim(claim, nil))
		})
	}
	if err != nil {
		return nil, err
	}
	return object, problems.ToAggregate()
}

// admitPod does what the API server does where a pod is created.
func admitPod(object *v1.Pod) (field.ErrorList, error) {
	if object.Namespace == "" {
		object.Namespace = v1.NamespaceDefault
	}
	if object.UID == "" {
		object.UID = types.UID(object.Namespace + "/" + object.Name)
	}
	status, deleted := object.Status, object.DeletionTimestamp
	object.DeletionTimestamp = nil
	stored := &api.Pod{}
	if err := legacyscheme.Scheme.Convert(object, stored, nil); err != nil {
		return nil, err
	}
	pod.Strategy.PrepareForCreate(context.Background(), stored)
	if problems := pod.Strategy.Validate(context.Background(), stored); len(problems) > 0 {
		return problems, nil
	}
	admitted := v1.Pod{}
	if err := legacyscheme.Scheme.Convert(stored, &admitted, nil); err != nil {
		return nil, err
	}
	admitted.TypeMeta, admitted.Status, admitted.DeletionTimestamp = object.TypeMeta, status, deleted
	*object = admitted
	return nil, nil
}

// validated validates an object in the API server's internal form.
func validated[Internal runtime.Object](object runtime.Object, internal Internal, validate func(Internal) field.ErrorList) (field.ErrorList, error) {
	if err := legacyscheme.Scheme.Convert(object, internal, nil); err != nil {
		return nil, err
	}
	return validate(internal), nil
}

// allAdmitted returns the objects of a list of a question by that name.
func allAdmitted(list string, raw []json.RawMessage) ([]runtime.Object, error) {
	objects := make([]runtime.Object, len(raw))
	for i, each := range raw {
		object, err := admitted(each)
		if err != nil {
			return nil, fmt.Errorf("%s[%d]: %w", list, i, err)
		}
		objects[i] = object
	}
	return objects, nil
}
