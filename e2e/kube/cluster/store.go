package cluster

import (
	"context"
	"fmt"
	"path"
)

// DeleteStored deletes an object behind the API server's back, which works while that is away. No watch is told, and a client that comes
// back learns of it by a new list. Resource is the plural as etcd has it, "services/specs" for Services; no other object of the
// core API has a second word there.
func (c *Cluster) DeleteStored(ctx context.Context, resource, namespace, name string) error {
	key := path.Join("/registry", resource, namespace, name)
	deleted, err := c.etcd.remove(ctx, key)
	if err != nil {
		return err
	}
	if deleted != 1 {
		return fmt.Errorf("delete %s in etcd: %d keys have that name, want one", key, deleted)
	}
	return nil
}

// remove deletes one key and returns how many there were.
func (e *etcd) remove(ctx context.Context, key string) (int, error) {
	var response struct {
		Deleted int `json:"deleted,string"`
	}
	err := e.call(ctx, "kv/deleterange", map[string][]byte{"key": []byte(key)}, &response) // bytes become base64, as etcd wants
	return response.Deleted, err
}
