package run

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// Candidate is a program that carries Services, as a line of shell with words in braces to be filled in:
//
//	{kubeconfig}                     a file that leads to the API server
//	{node}                           the name of the node
//	{dir}                            an empty directory
//	{config-MODE}                    a KubeProxyConfiguration with a mode: ipvs, iptables or nftables
//	{kube-ipvs}, {kube-proxy}        the programs
type Candidate struct {
	Name    string
	Command string
}

// Known are the candidates that need only a name.
func Known() []Candidate {
	const ours = " --on-missing-ipvs fail --run-dir {dir} --hostname-override {node} --config "
	const theirs = "{kube-proxy} --hostname-override {node} --config "
	return []Candidate{
		{"kube-ipvs", "{kube-ipvs}" + ours + "{config-ipvs}"},
		{"kube-ipvs-nftables", "{kube-ipvs} --rules nftables" + ours + "{config-ipvs}"},
		{"kube-proxy-ipvs", theirs + "{config-ipvs}"},
		{"kube-ipvs-iptables", "{kube-ipvs}" + ours + "{config-iptables}"},
		{"kube-proxy-iptables", theirs + "{config-iptables}"},
		{"kube-proxy-nftables", theirs + "{config-nftables}"},
	}
}

// Choose returns known candidates by their names, in the order of the names.
func Choose(names []string) ([]Candidate, error) {
	var out []Candidate
	for _, name := range names {
		i := slices.IndexFunc(Known(), func(c Candidate) bool { return c.Name == name })
		if i < 0 {
			return nil, fmt.Errorf("candidate %q is not known: give it as NAME=COMMAND LINE", name)
		}
		out = append(out, Known()[i])
	}
	return out, nil
}

var candidateName = regexp.MustCompile(`^[a-z0-9][a-z0-9.-]*$`)

// ParseCandidate reads NAME=COMMAND LINE.
func ParseCandidate(text string) (Candidate, error) {
	name, command, found := strings.Cut(text, "=")
	if !found || strings.TrimSpace(command) == "" {
		return Candidate{}, fmt.Errorf("candidate %q: want NAME=COMMAND LINE", text)
	}
	if !candidateName.MatchString(name) {
		return Candidate{}, fmt.Errorf("candidate %q: want a name of small letters, digits, dots and dashes", name)
	}
	return Candidate{Name: name, Command: command}, nil
}

var placeholder = regexp.MustCompile(`\{[a-z-]+\}`)

// fill puts values, by their names, into a command line. All that has no value is one error.
func (c Candidate) fill(values map[string]string) (string, error) {
	var errs []error
	line := placeholder.ReplaceAllStringFunc(c.Command, func(word string) string {
		value := values[word[1:len(word)-1]]
		if value == "" {
			errs = append(errs, fmt.Errorf("candidate %s: nothing is known for %s; there are %s", c.Name, word, strings.Join(slices.Sorted(maps.Keys(values)), ", ")))
		}
		return value
	})
	return line, errors.Join(errs...)
}

// Modes of kube-proxy.
var modes = []string{"ipvs", "iptables", "nftables"}

// proxyConfig is kube-proxy's file with its defaults, as kubeadm leaves them. nf_conntrack_max is the machine's, and kube-proxy does not
// start where it fails to set it, as in a namespace.
func proxyConfig(mode, kubeconfig, clusterCIDR string) string {
	return fmt.Sprintf(`apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: %s
clusterCIDR: %s
clientConnection:
  kubeconfig: %s
conntrack:
  maxPerCore: 0
`, mode, clusterCIDR, kubeconfig)
}
