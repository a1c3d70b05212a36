package vserver

// countList takes the counts of the wanted destinations from the list.
type countList struct {
	wanted  map[DestinationKey]struct{}
	servers map[ServerKey]struct{} // those of the wanted
	found   map[DestinationKey]Connections
	// key is the server whose destinations come now, asked whether some of them are
	// wanted.
	key   ServerKey
	asked bool
}

func newCountList(wanted map[DestinationKey]struct{}) *countList {
	l := &countList{
		wanted:  wanted,
		servers: make(map[ServerKey]struct{}),
		found:   make(map[DestinationKey]Connections, len(wanted)),
	}
	for k := range wanted {
		l.servers[k.Server] = struct{}{}
	}
	return l
}

func (l *countList) server(s serverLine) error {
	l.key, l.asked = s.key, false
	if s.mine {
		_, l.asked = l.servers[s.key]
	}
	return nil
}

func (l *countList) destination(d destinationLine) error {
	if l.asked {
		l.add(DestinationKey{Server: l.key, Addr: d.addr, Port: d.port}, d.count)
	}
	return nil
}

// add takes the counts of a destination if it is wanted.
func (l *countList) add(k DestinationKey, c Connections) {
	if _, wanted := l.wanted[k]; wanted {
		seen := l.found[k]
		l.found[k] = Connections{Active: max(seen.Active, c.Active), Inactive: max(seen.Inactive, c.Inactive)}
	}
}

// lacking are the servers of which not all that is wanted was found. A key that
// the kernel cannot have is not looked for.
func (l *countList) lacking() map[ServerKey]struct{} {
	servers := make(map[ServerKey]struct{})
	for k := range l.wanted {
		if _, found := l.found[k]; !found && k.check() == nil {
			servers[k.Server] = struct{}{}
		}
	}
	return servers
}
