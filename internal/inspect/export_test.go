package inspect

import "time"

// AnswerWithin is how long the server takes at most.
const AnswerWithin = answerWithin

// Patience is how long the client waits for an answer.
func (c *Client) Patience() time.Duration { return c.http.Timeout }

// SetPatience keeps tests of silence short.
func (c *Client) SetPatience(d time.Duration) { c.http.Timeout = d }
