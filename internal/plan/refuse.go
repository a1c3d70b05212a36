package plan

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/internal/printable"
)

// notOurs returns why the agent does not serve a Service, empty if it does. Three reasons are
// kube-proxy's; the fourth is the annotation kube-ipvs.io/skip. The sources filter most of
// these Services, but not those of files or with a label that is added later.
func notOurs(svc *model.Service) string {
	switch {
	case svc.HasProxyName:
		return "label service.kubernetes.io/service-proxy-name=" + printable.String(svc.ProxyName) + ": another proxy serves it"
	case svc.Type == "ExternalName":
		return "type ExternalName: clients are sent to a DNS name"
	case svc.Headless:
		return "headless: clients reach the endpoints directly"
	case svc.Policy != nil && svc.Policy.Skip:
		return "annotation kube-ipvs.io/skip: not served on this node"
	}
	return ""
}

// unusable reports why nothing of a Service that is ours can be served: the fields that the
// source could not read, and the notes so far.
func unusable(svc *model.Service, found notes) string {
	reasons := slices.Concat(model.NoteTexts(found), svc.BadAnnotations, svc.Problems)
	if len(svc.ClusterIPs) == 0 {
		reasons = append(reasons, "no cluster IP")
	}
	if len(svc.Ports) == 0 {
		reasons = append(reasons, "no ports")
	}
	slices.Sort(reasons)
	return strings.Join(slices.Compact(reasons), "; ")
}

// refuse notes why this node does not answer on an address of the Service,
// empty if it does. The cluster IPs have to be asked about first: they decide
// which families there are.
func (j *compilation) refuse(kind model.Kind, addr netip.Addr) string {
	if why := special(addr); why != "" {
		return why
	}
	f := model.FamilyOf(addr)
	switch {
	case !j.opts.serves(f):
		return fmt.Sprintf("this node does not serve %s", f)
	case kind != model.KindClusterIP && !j.family(f).served():
		return fmt.Sprintf("the Service has no %s cluster IP", f)
	case kind == model.KindExternalIP && !j.opts.ExternalIPs.allow(addr):
		return notAllowed
	}
	return ""
}

// notAllowed is the reason of an external IP that the operator does not allow.
const notAllowed = "not inside --external-ip-allowed-cidrs"

func (e ExternalIPs) allow(addr netip.Addr) bool {
	return len(e.Allowed) == 0 || inside(e.Allowed, addr)
}

// special names what makes an address unfit for a Service, empty if it is fit. For endpoints this
// is the rule of the API (ValidateNonSpecialIP of Kubernetes), which is not applied to manifests in
// files. As the front of a Service such an address, bound on a node, would catch traffic that is
// not meant for Services at all.
func special(addr netip.Addr) string {
	switch {
	case !addr.IsValid():
		return "not an IP address"
	case addr.Is4In6():
		return "an IPv4-mapped IPv6 address"
	case addr.IsUnspecified():
		return "the unspecified address"
	case addr.IsLoopback():
		return "a loopback address"
	case addr.IsLinkLocalUnicast():
		return "a link-local address"
	case addr.IsMulticast():
		return "a multicast address"
	case addr.Zone() != "":
		return "an address with a zone"
	}
	return ""
}
