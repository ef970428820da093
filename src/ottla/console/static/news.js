// News of the cluster, from the server.
"use strict";

new EventSource("news").onmessage = (message) => show(JSON.parse(message.data));
draw();
