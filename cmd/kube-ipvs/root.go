package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/kube-ipvs/kube-ipvs/internal/config"
)

const rootHelp = `kube-ipvs serves Kubernetes Services on this node with the kernel's IP Virtual
Server. Without a verb it runs until it is told to stop (SIGTERM); what it wrote
stays in the kernel and goes on carrying traffic.`

const rootExamples = `  # serve what a directory of manifests says, as the node worker-1
  kube-ipvs --source-dir /etc/kube-ipvs/manifests --hostname-override worker-1

  # weighted least connections, JSON logs, pods in 10.244.0.0/16
  kube-ipvs --source-dir . --ipvs-scheduler wlc --cluster-cidr 10.244.0.0/16 --logging-format json

  # what would be in the kernel? needs neither root nor IPVS
  kube-ipvs plan --source-dir . --hostname-override worker-1`

// newRoot builds the command tree. Running it alone is running the agent.
func newRoot() *cobra.Command {
	settings := config.Defaults()
	root := &cobra.Command{
		Use:           "kube-ipvs",
		Short:         "serve Kubernetes Services with IPVS",
		Long:          rootHelp,
		Example:       rootExamples,
		Args:          noArguments,
		Version:       buildVersion(),
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := check(settings)
			if err != nil {
				return err
			}
			return run(cmd.Context(), c)
		},
	}
	bindFlags(root.PersistentFlags(), &settings)
	root.SetGlobalNormalizationFunc(dashes)
	root.CompletionOptions.DisableDefaultCmd = true
	root.AddCommand(newPlan(&settings), newShow(&settings), newCheck(&settings), newCleanup(&settings), newVersion())
	return root
}

// dashes accepts underscores in flag names, as kube-proxy does.
func dashes(_ *pflag.FlagSet, name string) pflag.NormalizedName {
	b := []byte(name)
	for i, c := range b {
		if c == '_' {
			b[i] = '-'
		}
	}
	return pflag.NormalizedName(b)
}

func noArguments(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("%q is no verb and no flag: see %s --help", args[0], cmd.CommandPath())
	}
	return nil
}

// bindFlags declares the flags. Names and defaults are kube-proxy's where it has
// the flag.
func bindFlags(f *pflag.FlagSet, s *config.Settings) {
	f.SortFlags = false
	f.StringVar(&s.SourceDir, "source-dir", s.SourceDir, "directory of manifests (Service, EndpointSlice, Node), or one file; watched")
	f.StringVar(&s.Kubeconfig, "kubeconfig", s.Kubeconfig, "file that says how the API server is reached (default: the cluster this runs in)")
	f.StringVar(&s.Master, "master", s.Master, "URL of the API server, instead of the one in the kubeconfig")
	f.StringVar(&s.HostnameOverride, "hostname-override", s.HostnameOverride, "name of this node (default: the host's name)")
	f.StringVar(&s.ProxyMode, "proxy-mode", s.ProxyMode, "how to carry Services: ipvs")
	f.StringVar(&s.Scheduler, "ipvs-scheduler", s.Scheduler, "algorithm: rr wrr lc wlc lblc lblcr sh dh sed nq mh fo ovf (default rr)")
	f.StringSliceVar(&s.ExcludeCIDRs, "ipvs-exclude-cidrs", s.ExcludeCIDRs, "ranges in which virtual servers of others are left alone; Services there are served all the same")
	f.BoolVar(&s.StrictARP, "ipvs-strict-arp", s.StrictARP, "answer ARP only for addresses of the interface that was asked")
	f.DurationVar(&s.SyncPeriod, "ipvs-sync-period", s.SyncPeriod, "time between two rounds that look for drift in the kernel")
	f.StringVar(&s.DetectLocalMode, "detect-local-mode", s.DetectLocalMode, "how pods of this node are told: ClusterCIDR, NodeCIDR, BridgeInterface, InterfaceNamePrefix")
	f.StringVar(&s.ClusterCIDR, "cluster-cidr", s.ClusterCIDR, "ranges of pod addresses, one a family: 10.244.0.0/16,fd00:10:244::/56; without it only this host is masqueraded")
	f.StringVar(&s.PodBridge, "pod-bridge-interface", s.PodBridge, "bridge of the local pods, for BridgeInterface")
	f.StringVar(&s.PodPrefix, "pod-interface-name-prefix", s.PodPrefix, "beginning of the local pods' interface names, for InterfaceNamePrefix")
	f.BoolVar(&s.MasqueradeAll, "masquerade-all", s.MasqueradeAll, "rewrite the source of all traffic to cluster IPs")
	f.IntVar(&s.MasqueradeBit, "iptables-masquerade-bit", s.MasqueradeBit, "bit of the packet mark that asks for masquerading (0-31)")
	f.StringVar(&s.IPTables, "iptables-backend", s.IPTables, "auto, nft or legacy; auto looks where the host's rules live")
	f.StringSliceVar(&s.NodePortAddresses, "nodeport-addresses", s.NodePortAddresses, "where NodePorts answer: primary (addresses of the Node), localhost, all, CIDRs, or several of these (default all)")
	f.StringVar(&s.NodePortRange, "service-node-port-range", s.NodePortRange, "ports of NodePorts, as the API server is told: masquerading takes none of them; 0-0 if it may")
	f.StringSliceVar(&s.ExternalIPCIDRs, "external-ip-allowed-cidrs", s.ExternalIPCIDRs, "serve external IPs of Services in these ranges only (default: all)")
	f.StringSliceVar(&s.FeatureGates, "feature-gates", s.FeatureGates, "gates of kube-proxy, Name=true,...; AllowServiceExternalIPs=false serves no external IPs, others change nothing")
	f.StringVar(&s.RunDir, "run-dir", s.RunDir, "directory of the agent's socket, lock and journal")
	f.StringVar(&s.LogLevel, "log-level", s.LogLevel, "debug, info, warn or error")
	f.StringVar(&s.LogFormat, "logging-format", s.LogFormat, "text or json")
}

// check turns settings into a config, with all mistakes at once.
func check(s config.Settings) (config.Config, error) {
	host, err := os.Hostname()
	if err != nil && s.HostnameOverride == "" {
		return config.Config{}, fmt.Errorf("ask the host's name: %w", err)
	}
	c, err := s.Check(host)
	if err != nil {
		return c, fmt.Errorf("bad settings:\n%w", err)
	}
	return c, nil
}
