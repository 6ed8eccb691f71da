// A gateway of Protocol C whose task durations are realistic: log-normal, with a median in ms and a spread. With a
// third argument, tasks report their progress. /lateness returns, for each task, the time in ms from the end of the
// task to the next query of the client.
import { createServer } from 'node:http';

const [median, spread, tellsProgress] = process.argv.slice(2);
const tasks = new Map();
const late = [];
let seed = 7;

const server = createServer((request, response) => {
  const name = request.url.split('/').pop();
  request.resume();
  response.end(
    JSON.stringify(
      name === 'lateness'
        ? late.splice(0)
        : request.method === 'POST'
          ? newTask()
          : seen(name, performance.now()),
    ),
  );
});

function newTask() {
  const task_id = `task_${tasks.size}`;
  const begin = performance.now();
  tasks.set(task_id, { begin, end: begin + median * Math.exp(spread * normal()) });
  return { task_id, status: 'queued' };
}

function seen(task_id, now) {
  const { begin, end } = tasks.get(task_id);
  const progress = tellsProgress && { progress: Math.floor((100 * (now - begin)) / (end - begin)) };
  if (now < end) return { task_id, status: 'in_progress', ...progress };
  late.push(now - end);
  return { task_id, status: 'completed' };
}

function normal() {
  return Math.sqrt(-2 * Math.log(chance())) * Math.cos(2 * Math.PI * chance());
}

// Uses a fixed seed, so the durations are the same in each run.
function chance() {
  seed = (seed * 48271) % 2147483647;
  return seed / 2147483647;
}

server.listen(0, '127.0.0.1', () => process.send(`http://127.0.0.1:${server.address().port}`));
