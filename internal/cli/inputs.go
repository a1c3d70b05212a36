package cli

import (
	"context"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/kube-ipvs/kube-ipvs/internal/catalog"
	"github.com/kube-ipvs/kube-ipvs/internal/config"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/internal/source"
	"github.com/kube-ipvs/kube-ipvs/internal/source/file"
	"github.com/kube-ipvs/kube-ipvs/internal/source/kube"
	"github.com/kube-ipvs/kube-ipvs/internal/wiring"
)

// standardInput is the --source-dir of plan and diff for manifests on standard input.
const standardInput = "-"

// listWithin bounds the lists of an API server.
const listWithin = 30 * time.Second

// An input is read once and compiled: manifests, a cluster, or both.
type input struct {
	// manifests are a directory, a file, or standardInput; empty are none.
	manifests string
	stdin     io.Reader
	// cluster is true if the API server of the settings is listed, too.
	cluster bool
	// ranges have cluster IPs for Services without one, at most one range of each family.
	ranges []netip.Prefix
}

// inputs are the objects of an input.
type inputs struct {
	batch    catalog.Batch
	problems []file.Problem
	// nodes are the names of all Nodes, sorted.
	nodes []string
	apiServer
	// assigned names the cluster IPs that Services got.
	assigned []string
}

// apiServer has what an agent learns of an API server beside its objects.
type apiServer struct {
	// servers are the addresses of the API server.
	servers []netip.Addr
	// serviceCIDRs are the ranges that routes make local: of the settings, else of the API server.
	serviceCIDRs []netip.Prefix
}

// nodeNames is a sink that records the names of Nodes.
type nodeNames struct {
	source.Sink
	names []string
}

// SetNode implements source.Sink.
func (n *nodeNames) SetNode(origin model.Origin, node model.Node) {
	n.names = append(n.names, node.Name)
	n.Sink.SetNode(origin, node)
}

// read reads everything once. A cluster that refuses one list, or does not answer, is an error.
func (in input) read(ctx context.Context, c config.Config) (inputs, error) {
	out := inputs{apiServer: apiServer{serviceCIDRs: c.ServiceCIDRs}}
	var origins []model.Origin
	if in.manifests != "" {
		origins = append(origins, model.FromFile)
	}
	if in.cluster {
		origins = append(origins, model.FromKube)
	}
	known := catalog.New(zap.NewNop(), c.NodeName, origins...)
	known.Remember(wiring.NewNodeClaims(zap.NewNop(), c.RunDir).Load())
	sink := &nodeNames{Sink: known}
	if in.manifests != "" {
		objects, err := in.load(&out)
		if err != nil {
			return out, err
		}
		objects.Deliver(sink)
	}
	if in.cluster {
		var err error
		if out.apiServer, err = listCluster(ctx, c, sink); err != nil {
			return out, err
		}
	}
	slices.Sort(sink.names)
	out.batch, out.nodes = known.Take(), slices.Compact(sink.names)
	return out, nil
}

func (in input) load(out *inputs) (objects file.Objects, err error) {
	if in.manifests == standardInput {
		objects, out.problems, err = file.LoadFrom("standard input", in.stdin)
	} else {
		objects, out.problems, err = file.Load(in.manifests)
	}
	if err == nil {
		out.assigned, err = assignClusterIPs(objects.Services, in.ranges)
	}
	return objects, err
}

// listCluster lists everything of an API server once.
func listCluster(ctx context.Context, c config.Config, sink source.Sink) (apiServer, error) {
	ctx, cancel := context.WithTimeout(ctx, listWithin)
	defer cancel()
	reached := &kube.Reached{}
	client, err := wiring.NewClient(c, reached)
	if err != nil {
		return apiServer{}, err
	}
	o := kube.Options{Node: c.NodeName, AllNodes: c.WatchNodes != config.WatchOwn, ManyNodes: wiring.ManyNodes(c)}
	if err := kube.Once(ctx, client, o, sink); err != nil {
		return apiServer{}, fmt.Errorf("read the cluster: %w", err)
	}
	return apiServer{reached.Addrs(), wiring.WithServiceCIDRs(ctx, zap.NewNop(), c, client).ServiceCIDRs}, nil
}

// unknownNode returns a message if there are Nodes, and none has the name of this node.
func (i inputs) unknownNode(name string) string {
	if i.batch.Node.Name != "" || len(i.nodes) == 0 {
		return ""
	}
	const most = 5
	known := strings.Join(i.nodes[:min(most, len(i.nodes))], ", ")
	if more := len(i.nodes) - most; more > 0 {
		known += fmt.Sprintf(" and %d more", more)
	}
	return fmt.Sprintf("no Node %s, but %s: no endpoint counts as local, and no NodePort is served without --node-address: check --hostname-override", name, known)
}

// badFiles returns how many manifests cannot be read at all.
func (i inputs) badFiles() int {
	files := map[string]bool{}
	for _, p := range i.problems {
		if p.BadFile {
			files[p.File] = true
		}
	}
	return len(files)
}
