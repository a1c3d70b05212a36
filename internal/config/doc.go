// Package config reads and checks the agent's settings, and reports all mistakes
// together, each by the flag or the field of the file that it came by.
//
// Settings are the values as written: kube-proxy's KubeProxyConfiguration, our own
// KubeIPVSConfiguration, and the command line. Config has the parsed values. Later stages never see
// Settings, and a Config is never changed.
//
//	file ──► Settings ◄── flags that were given      (Loader.Load)
//	            │
//	            ▼ Check
//	          Config ──► Compare, Live: the settings that a running agent takes at once
//
// The law it keeps: everything that can be set is one row of the table of settings
// (settingtable.go, settingtable_kubeproxy.go). Flags are declared, fields decoded and mistakes named
// by it, so that a setting cannot be in one place and be missing in another. A value
// never comes from anywhere but the default, the file, and over both the flag.
package config
