// A gateway that responds immediately with the model list, or with a running task.
import { createServer } from 'node:http';

const models = JSON.stringify({ object: 'list', data: [{ id: 'vendor-h3', object: 'model' }] });
const task = JSON.stringify({ task_id: 'task_1', status: 'in_progress', progress: 10 });

const server = createServer((request, response) => {
  request.resume();
  response.setHeader('content-type', 'application/json');
  response.end(request.url.endsWith('/models') ? models : task);
});
server.listen(0, '127.0.0.1', () => process.send(`http://127.0.0.1:${server.address().port}`));
