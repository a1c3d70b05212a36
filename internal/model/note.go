package model

import "cmp"

// Note is a reason as a value: why something of a Service is not served as it asks. Programs go
// by the code, people read the text.
type Note struct {
	Code NoteCode `json:"code"`
	Text string   `json:"text"`
}

// NoteCode names a kind of reason. Logs, Events and JSON have it, so the codes stay as they are.
type NoteCode string

// Why a port has no backends. The port answers, and refuses its clients.
const (
	// NoEndpoints: no EndpointSlice of the family has an endpoint. It is true of every
	// Service for a moment, for its slices come after it.
	NoEndpoints NoteCode = "NoEndpoints"
	// NoReadyEndpoints: endpoints are there, and none of them is ready.
	NoReadyEndpoints NoteCode = "NoReadyEndpoints"
	// NoMatchingPort: no EndpointSlice has a port of that name and protocol.
	NoMatchingPort NoteCode = "NoMatchingPort"
	// OtherFamilyOnly: all EndpointSlices have addresses of another family.
	OtherFamilyOnly NoteCode = "OtherFamilyOnly"
	// NoLocalEndpoints: the traffic policy is Local, and no endpoint of this node is ready.
	// Clients get no answer at all.
	NoLocalEndpoints NoteCode = "NoLocalEndpoints"
)

// Why something else is not served as it is asked for.
const (
	// AddressRefused: an address cannot be that of a Service on this node.
	AddressRefused NoteCode = "AddressRefused"
	// AddressTwice: a Service lists an address as two kinds, and answers there once.
	AddressTwice NoteCode = "AddressTwice"
	// BadAnnotation: an annotation is not followed.
	BadAnnotation NoteCode = "BadAnnotation"
	// BadObject: a field of the Service or of an EndpointSlice cannot be used.
	BadObject NoteCode = "BadObject"
	// EndpointFailsProbe: an API server does not answer its probes, so it gets no new connections.
	EndpointFailsProbe NoteCode = "EndpointFailsProbe"
	// EndpointRefused: no packet can be sent to the address of an endpoint.
	EndpointRefused NoteCode = "EndpointRefused"
	// ExternalIPsOff: the feature gate AllowServiceExternalIPs is off.
	ExternalIPsOff NoteCode = "ExternalIPsOff"
	// LeftToLoadBalancer: a load-balancer address has ipMode Proxy.
	LeftToLoadBalancer NoteCode = "LeftToLoadBalancer"
	// NodePortTaken: another port of the Service has the node port on that address.
	NodePortTaken NoteCode = "NodePortTaken"
	// NodePortTwice: the Service lists a node port twice.
	NodePortTwice NoteCode = "NodePortTwice"
	// NotRelayed: the NodePort of a protocol that is not relayed on loopback addresses.
	NotRelayed NoteCode = "NotRelayed"
	// NoNodePortAddress: no address of this node is chosen for node ports of a family.
	NoNodePortAddress NoteCode = "NoNodePortAddress"
	// PortTwice: the Service lists a port twice.
	PortTwice NoteCode = "PortTwice"
	// PortWithoutNumber: a port of the Service has no number.
	PortWithoutNumber NoteCode = "PortWithoutNumber"
	// ProbesIgnored: fewer than half of the API servers answer their probes, so all get connections.
	ProbesIgnored NoteCode = "ProbesIgnored"
	// TooManyFrontends and TooManySourceRanges: the Service has more than one may have.
	TooManyFrontends    NoteCode = "TooManyFrontends"
	TooManySourceRanges NoteCode = "TooManySourceRanges"
	// VIPConflictsWithNode: another machine, or this one, has an address of the Service, so
	// it is not bound.
	VIPConflictsWithNode NoteCode = "VIPConflictsWithNode"
)

// NoBackends reports whether a port has no backends for that reason.
func (c NoteCode) NoBackends() bool {
	switch c {
	case NoEndpoints, NoReadyEndpoints, NoMatchingPort, OtherFamilyOnly, NoLocalEndpoints:
		return true
	}
	return false
}

// Compare orders by text.
func (n Note) Compare(o Note) int {
	return cmp.Or(cmp.Compare(n.Text, o.Text), cmp.Compare(n.Code, o.Code))
}

// String is the text.
func (n Note) String() string { return n.Text }

// NoteTexts are the sentences of notes; nil for none.
func NoteTexts(notes []Note) []string {
	var out []string
	for _, n := range notes {
		out = append(out, n.Text)
	}
	return out
}
