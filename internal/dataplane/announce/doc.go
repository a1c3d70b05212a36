// Package announce decides which addresses of Services this node announces, and owns the routes by
// which a routing daemon learns of them. Both modes have it as their last table.
//
//	decision.go  pure: whether an address is announced, and why not
//	manager.go   the table "announced": one route for each announced address
//
// A row is added after all other rows, and only when a frontend at its address is in place. It is
// deleted before all other rows. So routers send no packet for an address to a node that does not
// serve it, as far as they follow the routes.
package announce
