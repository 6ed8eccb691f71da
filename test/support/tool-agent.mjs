// An agent that runs a command as a tool. If the first call times out, the agent ends the command and calls it again.
// The agent uses one --key for all attempts. Usage: node tool-agent.mjs TIMEOUT_MS -- mgw …
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { clearTimeout, setTimeout } from 'node:timers';

const [timeoutMs, , program, ...args] = process.argv.slice(2);

process.exitCode = 1;
for (let tries = 1; tries <= 10 && process.exitCode !== 0; tries += 1) {
  const child = spawn(program, [...args, '--key', 'clip'], { stdio: 'inherit' });
  const patience = tries === 1 && setTimeout(() => child.kill('SIGTERM'), Number(timeoutMs));
  [process.exitCode] = await once(child, 'exit');
  clearTimeout(patience);
}
