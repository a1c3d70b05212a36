package vserver

import "fmt"

// change is the part of a row, of either table, that the batch writer uses.
type change[C any] interface {
	// wanted is the operation asked for.
	wanted() Op
	// Check refuses what cannot be expressed.
	Check() error
	// command is the IPVS command of an operation.
	command(Op) uint8
	// encode writes the attributes of an operation.
	encode(*buffer, Op)
	// settle turns a refusal into the operation to try next, or into the row's
	// final error, which is nil where the wanted state is reached anyway.
	settle(Op, answer) (next Op, again bool, err error)
	// describe names the row and the operation for an error text.
	describe() string
	// servers is how many more there are once the operation is done.
	servers(Op) int
}

func (c ServerChange) wanted() Op { return c.Op }

// Check refuses a row that cannot be expressed to the kernel, with ErrInvalid
// or ErrUnsupported. WriteServers does so by itself and does not send it.
func (c ServerChange) Check() error {
	if err := checkAddr(c.Key.Addr); err != nil || c.Op == Delete {
		return err
	}
	if c.Server.HostBits > uint8(c.Key.Addr.BitLen()) {
		return fmt.Errorf("persistence without %d bits: %w", c.Server.HostBits, ErrInvalid)
	}
	if len(c.Server.Scheduler) > maxName || len(c.Server.Engine) > maxName {
		return fmt.Errorf("scheduler %q: %w", c.Server.Scheduler, ErrUnsupported)
	}
	return nil
}

func (c ServerChange) command(op Op) uint8 {
	return [...]uint8{Add: cmdNewServer, Update: cmdSetServer, Delete: cmdDelServer}[op]
}

func (c ServerChange) encode(b *buffer, op Op) {
	mark := b.nest(attrServer)
	b.serverKey(c.Key)
	if op != Delete {
		b.serverValue(c.Key, c.made(op))
	}
	b.unnest(mark)
}

func (c ServerChange) describe() string {
	return c.Op.String() + " server " + c.Key.String()
}

func (c ServerChange) servers(op Op) int {
	return [...]int{Add: 1, Update: 0, Delete: -1}[op]
}

func (c DestinationChange) wanted() Op { return c.Op }

// Check refuses a row that cannot be expressed to the kernel, with ErrInvalid.
func (c DestinationChange) Check() error {
	if err := c.Key.check(); err != nil || c.Op == Delete || c.Destination.Tunnel == TunnelIPIP {
		return err
	}
	if c.Destination.Forward != ForwardTunnel || c.Destination.Tunnel == TunnelGUE && c.Destination.TunnelPort == 0 {
		return fmt.Errorf("%s is no tunnel with a port: %w", saveForward(c.Destination), ErrInvalid)
	}
	return nil
}

func (c DestinationChange) command(op Op) uint8 {
	return [...]uint8{Add: cmdNewDestination, Update: cmdSetDestination, Delete: cmdDelDestination}[op]
}

func (c DestinationChange) encode(b *buffer, op Op) {
	b.server(c.Key.Server)
	mark := b.nest(attrDestination)
	b.destinationKey(c.Key)
	if op != Delete {
		b.destinationValue(c.Destination)
	}
	b.unnest(mark)
}

func (c DestinationChange) describe() string {
	return c.Op.String() + " destination " + c.Key.String()
}

func (c DestinationChange) servers(Op) int { return 0 }
