// Package operator is a small operator as people write them with controller-runtime: a Fleet is a Deployment of so many ships.
package operator

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Group and version of Fleets.
var GroupVersion = schema.GroupVersion{Group: "e2e.keelson.dev", Version: "v1"}

// Definition is the CustomResourceDefinition of Fleets; the extra property of the spec is added where the %s is.
const Definition = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: fleets.e2e.keelson.dev}
spec:
  group: e2e.keelson.dev
  scope: Namespaced
  names: {plural: fleets, singular: fleet, kind: Fleet, shortNames: [fl], categories: [navy]}
  versions:
  - name: v1
    served: true
    storage: true
    subresources:
      status: {}
      scale: {specReplicasPath: .spec.ships, statusReplicasPath: .status.ships, labelSelectorPath: .status.selector}
    additionalPrinterColumns:
    - {name: Wanted, type: integer, jsonPath: .spec.ships}
    - {name: Afloat, type: integer, jsonPath: .status.ships}
    selectableFields: [{jsonPath: .spec.image}]
    schema:
      openAPIV3Schema:
        type: object
        description: A Fleet is a number of ships of one build.
        required: [spec]
        properties:
          spec:
            type: object
            required: [image]
            properties:
              ships: {type: integer, format: int32, minimum: 0, maximum: 9, default: 1, description: How many ships there are to be.}
              image: {type: string, pattern: "^e2e/", description: What the ships are built from.}%s
          status:
            type: object
            properties:
              ships: {type: integer, format: int32}
              selector: {type: string}
              observedGeneration: {type: integer, format: int64}
`

// Fleet is a number of ships of one build.
type Fleet struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   FleetSpec   `json:"spec"`
	Status FleetStatus `json:"status,omitempty"`
}

// FleetSpec is what is wanted.
type FleetSpec struct {
	Ships *int32 `json:"ships,omitempty"`
	Image string `json:"image"`
}

// FleetStatus is what there is.
type FleetStatus struct {
	Ships              int32  `json:"ships,omitempty"`
	Selector           string `json:"selector,omitempty"`
	ObservedGeneration int64  `json:"observedGeneration,omitempty"`
}

// FleetList is a list of them.
type FleetList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Fleet `json:"items"`
}

// DeepCopyObject is what the scheme asks of a type.
func (f *Fleet) DeepCopyObject() runtime.Object { return f.deepCopy() }

func (f *Fleet) deepCopy() *Fleet {
	out := *f
	f.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	if f.Spec.Ships != nil {
		ships := *f.Spec.Ships
		out.Spec.Ships = &ships
	}
	return &out
}

// DeepCopyObject is what the scheme asks of a type.
func (l *FleetList) DeepCopyObject() runtime.Object {
	out := *l
	l.ListMeta.DeepCopyInto(&out.ListMeta)
	out.Items = make([]Fleet, len(l.Items))
	for i := range l.Items {
		out.Items[i] = *l.Items[i].deepCopy()
	}
	return &out
}
