package cluster

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
)

// apiServerArgs are the flags of kube-apiserver. Parts that would act on their own, or that wait
// for a controller, are switched off.
func apiServerArgs(o Options, port int, etcdURL string, f files) []string {
	args := []string{
		"--etcd-servers=" + etcdURL,
		"--etcd-compaction-interval=0", // Compact decides
		"--bind-address=" + o.Bind.String(),
		"--secure-port=" + strconv.Itoa(port),
		"--tls-cert-file=" + f.server.cert, "--tls-private-key-file=" + f.server.key,
		"--cert-dir=" + f.dir,
		"--client-ca-file=" + f.ca,
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + f.accounts, "--service-account-signing-key-file=" + f.accounts,
		"--authorization-mode=RBAC",
		"--allow-privileged=true", // as kubeadm has it: kube-proxy is
		"--service-cluster-ip-range=" + joinPrefixes(o.ServiceCIDRs),
		"--service-node-port-range=" + o.NodePorts,
		"--profiling=false",
	}
	if o.Nodes {
		args = append(args, "--authorization-mode=Node", "--kubelet-preferred-address-types=InternalIP",
			"--kubelet-client-certificate="+f.kubelet.cert, "--kubelet-client-key="+f.kubelet.key)
	} else {
		args = append(args, "--disable-admission-plugins=ServiceAccount") // it wants the account "default", which a controller makes
	}
	if endpoint := o.advertised(); endpoint.IsValid() {
		args = append(args, "--advertise-address="+endpoint.String())
	} else {
		// Without the reconciler the address goes nowhere, but left out it is looked for, and not found without a default route.
		args = append(args, "--endpoint-reconciler-type=none", "--advertise-address=192.0.2.1")
	}
	return append(args, o.APIServerArgs...)
}

func joinPrefixes(prefixes []netip.Prefix) string {
	var texts []string
	for _, prefix := range prefixes {
		texts = append(texts, prefix.String())
	}
	return strings.Join(texts, ",")
}

// serverURL is the API under one of its addresses.
func serverURL(addr netip.Addr, port int) string {
	return "https://" + net.JoinHostPort(addr.String(), strconv.Itoa(port))
}

// awaitAPIServer returns when the server reports that it is ready, which includes its first objects and the roles of RBAC.
func (c *Cluster) awaitAPIServer(ctx context.Context) error {
	return awaitReady(ctx, &c.apiserver, func(ctx context.Context) error {
		return get(ctx, c.http, c.Server(c.options.local())+"/readyz")
	})
}

// get succeeds when the answer is 200.
func get(ctx context.Context, client *http.Client, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	answer, err := client.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("get %s: %s", url, answer.Status)
	}
	return nil
}
