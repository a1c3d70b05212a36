package podexec

import (
	"cmp"
	"slices"
	"strings"
)

// program is the command of a container that has none of its own: that of the image.
const program = "kube-ipvs"

// Limits of what is taken of a pod's command line.
const (
	mostFlags   = 200
	longestFlag = 4096
)

// targetOf returns the command line by which a verb finds the settings of the agent of a pod.
func (c *Client) targetOf(p pod) target {
	t := target{pod: p, command: program, container: c.options.Container}
	i := slices.IndexFunc(p.Spec.Containers, func(one container) bool { return one.Name == c.options.Container })
	if i < 0 && len(p.Spec.Containers) == 1 {
		i = 0 // the only one, whatever its name is
	}
	if i < 0 {
		return t
	}
	t.container = p.Spec.Containers[i].Name
	agent := p.Spec.Containers[i]
	env := environment(p, agent.Env)
	var words []string
	for _, word := range slices.Concat(agent.Command, agent.Args) {
		if len(word) <= longestFlag && len(words) < mostFlags {
			words = append(words, expand(word, env))
		}
	}
	if len(agent.Command) > 0 && len(words) > 0 {
		t.command, words = cmp.Or(words[0], program), words[1:]
	}
	t.flags = words
	p.Spec.Containers = nil // they are not needed any longer
	t.pod = p
	return t
}

// environment returns the variables of a container whose values the API server knows.
func environment(p pod, list []variable) map[string]string {
	out := map[string]string{}
	for _, v := range list {
		out[v.Name] = v.Value
		if v.ValueFrom == nil || v.ValueFrom.FieldRef == nil {
			continue
		}
		switch v.ValueFrom.FieldRef.FieldPath {
		case "spec.nodeName":
			out[v.Name] = p.Spec.NodeName
		case "metadata.name":
			out[v.Name] = p.Metadata.Name
		case "metadata.namespace":
			out[v.Name] = p.Metadata.Namespace
		case "status.hostIP":
			out[v.Name] = p.Status.HostIP
		case "status.podIP":
			out[v.Name] = p.Status.PodIP
		}
	}
	return out
}

// expand replaces $(NAME) as the kubelet does: an unknown one stays.
func expand(word string, env map[string]string) string {
	var b strings.Builder
	for {
		before, rest, found := strings.Cut(word, "$(")
		b.WriteString(before)
		if !found {
			return b.String()
		}
		name, after, closed := strings.Cut(rest, ")")
		value, known := env[name]
		switch {
		case !closed:
			b.WriteString("$(" + rest)
			return b.String()
		case known:
			b.WriteString(value)
		default:
			b.WriteString("$(" + name + ")")
		}
		word = after
	}
}

// sources are flags that name where Services come from. With one of them diff compiles what is desired
// by itself, and asks no agent.
var sources = []string{"--source-dir", "--kubeconfig", "--master"}

// line returns the command line of a verb on a node. Flags of the agent that name its sources are
// passed only to a verb that asks the API server, which --source-dir= does.
func (t target) line(args []string) []string {
	dropped := sources
	if slices.Contains(args, "--source-dir=") {
		dropped = sources[:1]
	}
	out := append([]string{t.command}, args...)
	for i := 0; i < len(t.flags); i++ {
		name, _, joined := strings.Cut(t.flags[i], "=")
		if !slices.Contains(dropped, name) {
			out = append(out, t.flags[i])
			continue
		}
		if !joined {
			i++ // its value is a word of its own
		}
	}
	return out
}
