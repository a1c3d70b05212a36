package file

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	goyaml "go.yaml.in/yaml/v2"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/kube-ipvs/kube-ipvs/internal/source"
)

const (
	coreV1      = "v1"
	discoveryV1 = "discovery.k8s.io/v1"
)

// ours are the kinds that are read, with the one version that is.
var ours = map[string]string{
	"Service": coreV1, "Node": coreV1, "EndpointSlice": discoveryV1,
	"ServiceList": coreV1, "NodeList": coreV1, "EndpointSliceList": discoveryV1,
	"List": coreV1,
}

// item is one object of a document, or of the List that a document is.
type item struct {
	doc *document
	// path leads from the document to the object: "", or "items[3]".
	path     string
	typeMeta metav1.TypeMeta
	json     []byte
}

// list is the envelope of "v1 List" and of the typed lists.
type list struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []json.RawMessage `json:"items"`
}

// open turns a document into its items: one, or those of a List. Objects of
// other kinds come along, for the caller to count.
func open(doc *document) ([]item, []fault) {
	it := item{doc: doc, json: doc.text}
	if !doc.json {
		var err error
		if it.json, err = yaml.YAMLToJSONStrict(doc.text); err != nil {
			return nil, yamlFaults(err)
		}
		if err := checkEnd(doc.text); err != nil {
			return nil, yamlFaults(err)
		}
	}
	if err := it.readType(metav1.TypeMeta{}); err != nil {
		return nil, []fault{*err}
	}
	if !it.isList() {
		return []item{it}, nil
	}
	return it.open()
}

// checkEnd refuses text behind the end of a document. A block mapping, which begins with the letter
// of a key, ends where the text ends. The parser, however, stops at the closing brace of a flow
// mapping and ignores the rest of the text.
func checkEnd(doc []byte) error {
	if c := bodyOf(doc)[0]; 'a' <= c && c <= 'z' {
		return nil
	}
	var ignored any
	dec := goyaml.NewDecoder(bytes.NewReader(doc))
	if err := dec.Decode(&ignored); err != nil {
		return err
	}
	switch err := dec.Decode(&ignored); {
	case errors.Is(err, io.EOF):
		return nil
	case err != nil:
		return err
	}
	return errors.New("more text after the end of the document")
}

// open takes a List apart. The items of a typed list need not name their type,
// as the API server itself leaves it out.
func (it *item) open() ([]item, []fault) {
	envelope, faults := strict[list](it.json)
	if len(faults) > 0 {
		return nil, faults
	}
	implied := metav1.TypeMeta{}
	if it.typeMeta.Kind != "List" {
		implied = metav1.TypeMeta{APIVersion: it.typeMeta.APIVersion, Kind: strings.TrimSuffix(it.typeMeta.Kind, "List")}
	}
	items := make([]item, 0, len(envelope.Items))
	for i, raw := range envelope.Items {
		inner := item{doc: it.doc, path: fmt.Sprintf("items[%d]", i), json: raw}
		err := inner.readType(implied)
		if err == nil && inner.isList() {
			err = &fault{path: "kind", reason: "a List inside a List"}
		}
		if err != nil {
			return nil, []fault{err.below(inner.path)}
		}
		items = append(items, inner)
	}
	return items, nil
}

// readType finds out what an object is, and refuses what looks like one of ours
// but is not: a version that is not read, a kind in the wrong case.
func (it *item) readType(implied metav1.TypeMeta) *fault {
	var t metav1.TypeMeta
	if err := kjson.UnmarshalCaseSensitivePreserveInts(it.json, &t); err != nil {
		f := jsonFault(it.json, err)
		if f.path == "" {
			f.reason = "not an object with apiVersion and kind"
		}
		return &f
	}
	if t.Kind == "" && t.APIVersion == "" {
		t = implied
	}
	switch {
	case t.Kind == "":
		return &fault{path: "kind", reason: "missing"}
	case t.APIVersion == "":
		return &fault{path: "apiVersion", reason: "missing"}
	}
	it.typeMeta = t
	return checkVersion(t)
}

func checkVersion(t metav1.TypeMeta) *fault {
	for kind, version := range ours {
		if !strings.EqualFold(kind, t.Kind) || group(version) != group(t.APIVersion) {
			continue
		}
		if version != t.APIVersion {
			return &fault{path: "apiVersion", reason: fmt.Sprintf("%s of %s is not supported, use %s", t.APIVersion, kind, version)}
		}
		if kind != t.Kind {
			return &fault{path: "kind", reason: fmt.Sprintf("%q is spelled %s", t.Kind, kind)}
		}
	}
	return nil
}

// group is the API group of an apiVersion; the core group has no name.
func group(apiVersion string) string {
	g, _, found := strings.Cut(apiVersion, "/")
	if !found {
		return ""
	}
	return g
}

// foreign reports whether an object is of a kind that this program does not use.
func (it *item) foreign() bool { return ours[it.typeMeta.Kind] != it.typeMeta.APIVersion }

// isList reports whether the object is a list of kinds that this program uses; other lists are
// foreign.
func (it *item) isList() bool { return strings.HasSuffix(it.typeMeta.Kind, "List") && !it.foreign() }

// decode reads one object of ours strictly and converts it.
func (it *item) decode() (object, []fault) {
	switch it.typeMeta.Kind {
	case "Service":
		in, faults := strict[corev1.Service](it.json)
		return it.object(kindService, &in.ObjectMeta, &serviceValue{source.Service(origin, in)}, faults)
	case "EndpointSlice":
		in, faults := strict[discoveryv1.EndpointSlice](it.json)
		return it.object(kindSlice, &in.ObjectMeta, &sliceValue{source.Slice(origin, in)}, faults)
	default:
		in, faults := strict[corev1.Node](it.json)
		in.Namespace = ""
		return it.object(kindNode, &in.ObjectMeta, &nodeValue{source.Node(in)}, faults)
	}
}

func (it *item) object(k kind, meta *metav1.ObjectMeta, v value, faults []fault) (object, []fault) {
	ns := meta.Namespace
	if ns == "" && k != kindNode {
		ns = metav1.NamespaceDefault
	}
	o := object{key: key{kind: k, namespace: ns, name: meta.Name}, document: it.doc.number, value: v}
	if handedOut(meta) {
		faults = o.passNewer(faults)
	}
	if meta.Name == "" && len(faults) == 0 {
		faults = []fault{{path: "metadata.name", reason: "missing"}}
	}
	for i := range o.newer {
		o.newer[i] = o.newer[i].below(it.path)
	}
	for i := range faults {
		faults[i] = faults[i].below(it.path)
		if meta.Name != "" {
			faults[i].object = o.key.String()
		}
	}
	return o, faults
}

// handedOut reports whether an object comes from an API server, which has checked its fields and
// has dropped unknown ones. A field of it that is unknown here must be newer than our types. A
// field of a manifest that a person wrote is a slip of the pen instead.
func handedOut(meta *metav1.ObjectMeta) bool {
	return meta.UID != "" || meta.ResourceVersion != "" || !meta.CreationTimestamp.IsZero()
}

// passNewer takes the unknown fields out of faults, and keeps them as notes of the object.
func (o *object) passNewer(faults []fault) (rest []fault) {
	for _, f := range faults {
		if !f.unknown {
			rest = append(rest, f)
			continue
		}
		f.object, f.reason = o.key.String(), "a field that this version does not know: it is ignored"
		o.newer = append(o.newer, f)
	}
	return rest
}

// strict decodes JSON into an API type; unknown and repeated fields are faults. The value has all
// fields that could be read.
func strict[T any](raw []byte) (*T, []fault) {
	var v T
	soft, err := kjson.UnmarshalStrict(raw, &v)
	if err != nil {
		return &v, []fault{jsonFault(raw, err)}
	}
	var faults []fault
	for _, e := range soft {
		faults = append(faults, strictFault(e))
	}
	return &v, faults
}

// unknownField is the error of sigs.k8s.io/json for a field that a type does not have.
const unknownField = "unknown field"

func strictFault(err error) fault {
	var field kjson.FieldError
	if !errors.As(err, &field) {
		return fault{reason: err.Error()}
	}
	what, _, _ := strings.Cut(field.Error(), ` "`)
	return fault{path: field.FieldPath(), reason: what, unknown: what == unknownField}
}
