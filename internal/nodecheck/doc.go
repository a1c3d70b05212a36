// Package nodecheck finds what keeps a node from carrying Services, or hurts them, and names the
// remedy.
//
//	Run ──► what the mode needs, tried by use    device, schedulers, set types, iptables
//	    ──► settings of the node                 sysctls, sizes of tables, links, other proxies
//	    ──► who else is here                     owners of IPVS, the other backend, firewalls
//
// A check changes no setting and leaves nothing behind but modules that its use loaded. The agent
// takes remedies and desired values from here, too: its actions and the findings of check are the same.
package nodecheck
