import { readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect } from 'vitest';
import type { CliJson, Running } from '../support/cli.ts';
import { canMount, type Disk } from './disk.ts';
import { ledgerOf } from './invariants.ts';
import { reply, type Call } from './gateway.ts';
import { fast, it, secured, shown, type Scene } from './scene.ts';
import { says } from './until.ts';

// The records on disk do not depend on the protocol, so these tests use only one protocol. test/storm simulates power
// cuts for each protocol, at every moment.

function stateOf({ user }: Scene): string {
  return join(user.cwd, 'state');
}

/** Starts a command, passes `arm` the function that kills it, and waits until it has been killed. */
async function killedAt(scene: Scene, arm: (kill: () => void) => void): Promise<void> {
  const running: Running[] = [];
  arm(() => running[0]?.child.kill('SIGKILL'));
  running.push(scene.start(scene.command()));
  expect((await running[0]?.result)?.code).toBe(137);
}

describe.concurrent('kill -9 before the connection is open', () => {
  it('is followed by a rerun that submits once', async ({ open }) => {
    const scene = await open('c', secured());
    await killedAt(scene, (kill) => {
      scene.gateway.onTcp.push(() => {
        kill();
        return true;
      });
    });
    const again = await scene.again();
    expect(again.code, shown(again)).toBe(0);
    await scene.expectInvariants(1);
  });
});

describe.concurrent('kill -9 between "sending" and the response', () => {
  it('is followed by a rerun that exits with 7 and sends nothing', async ({ open }) => {
    const scene = await open('c');
    await killedAt(scene, (kill) => {
      scene.gateway.onTcp.push((socket) => {
        socket.once('data', kill);
        return true;
      });
    });
    await scene.expectRerun(7);
    await scene.expectInvariants(0);
  });
});

describe.concurrent('kill -9 after the response is recorded', () => {
  it('is followed by a rerun that resumes, even after a second kill', async ({ open }) => {
    const scene = await open('c');
    for (let times = 0; times < 2; times += 1)
      await killedAt(scene, (kill) => void scene.gateway.script.query.push(kill));
    await scene.expectRerun(0);
    await scene.expectInvariants(1);
  });
});

describe.skipIf(!canMount)('a state folder that is not writable', { concurrent: true }, () => {
  it.for([
    ['the disk is full', (disk: Disk) => disk.fill(), (disk: Disk) => disk.clear()],
    ['the file system is read-only', (disk: Disk) => disk.readOnly(), (disk: Disk) => disk.writable()],
  ] as const)('leads to exit 10 if %s, and nothing is sent', async ([, spoil, repair], { open }) => {
    const scene = await open('c');
    const disk = scene.mount('state', 256);
    spoil(disk);
    const run = await scene.submit();
    expect(run.json).toMatchObject({
      exit_code: 10,
      error: { code: 'local_io', charged: 'no', retry: 'safe' },
    });
    await scene.expectRerun(10);
    repair(disk);
    await scene.expectInvariants(0);
  });

  it('leads to exit 10 if the disk fills up while mgw connects, and nothing is sent', async ({ open }) => {
    const scene = await open('c', secured());
    const disk = scene.mount('state', 256);
    scene.gateway.onTcp.push(() => {
      disk.fill();
      return false;
    });
    const run = await scene.submit();
    expect(run.json).toMatchObject({ exit_code: 10, error: { code: 'local_io', charged: 'no' } });
    expect(scene.gateway.seen).toEqual([]);
    disk.clear();
    await scene.expectInvariants(0);
  });
});

describe.concurrent('a file in place of the state folder', () => {
  it('leads to exit 10, and nothing is sent', async ({ open }) => {
    const scene = await open('c');
    writeFileSync(stateOf(scene), 'not a folder');
    const run = await scene.submit();
    expect(run.json).toMatchObject({ exit_code: 10, error: { code: 'local_io', charged: 'no' } });
    await scene.expectRerun(10);
    rmSync(stateOf(scene));
    await scene.expectInvariants(0);
  });
});

describe.skipIf(!canMount)('a disk that is full after acceptance', { concurrent: true }, () => {
  it('does not lose the handle: it is printed on stdout and stderr, and can be adopted', async ({ open }) => {
    const scene = await open('c');
    const disk = scene.mount('state', 256);
    scene.gateway.script.submit.push(({ gateway, response }) => {
      disk.fill();
      // The response is longer than the free space in the last block of the job's record.
      response.end(JSON.stringify({ ...JSON.parse(gateway.accept()), note: 'x'.repeat(9000) }));
    });
    const run = await scene.run(scene.typed());
    const [handle = ''] = scene.gateway.created;
    expect(run.code, shown(run)).toBe(10);
    expect(run.stdout).toContain(handle);
    expect(run.stderr).toContain(handle);
    disk.clear();
    await scene.expectRerun(7);
    const [job] = await scene.expectInvariants(1);
    expect(run.stderr).toContain(`next: mgw jobs resolve ${job?.id} --adopt ${handle}`);
    await scene.here(['jobs', 'resolve', job?.id ?? '', '--adopt', handle]);
    const resumed = await scene.submit();
    expect(resumed.code, shown(resumed)).toBe(0);
    expect(scene.gateway.submissions).toHaveLength(1);
    await scene.expectInvariants(1);
  });
});

describe('parallel processes', () => {
  // For more parallel runs, see test/jobs/submit-together.test.ts, which starts a hundred in one process.
  it('all succeed and create only two tasks if they submit under two keys at the same moment', async ({
    open,
  }) => {
    const scene = await open('c');
    const count = 4;
    // For an unknown model, mgw reads the model list before it claims the key. The gateway delays its responses until
    // all processes have requested the list.
    const model = 'vendor-h4';
    const waiting: Call[] = [];
    scene.gateway.always.other = (call) => {
      waiting.push(call);
      if (waiting.length < count) return;
      for (const { response } of waiting.splice(0)) reply(response, { body: { data: [{ id: model }] } });
    };
    const words = (index: number): string[] => [
      ...scene.gateway.dialect.command.map((word) => (word === 'vendor-h3-mini' ? model : word)),
      ...['--key', `boat-${index < 3 ? 'one' : 'other'}`],
      // Two of the three processes with the same key save the video to the same file.
      ...(index < 2 ? ['-o', scene.out, ...fast] : []),
    ];
    const runs = await Promise.all(Array.from({ length: count }, (_, index) => scene.run(words(index))));
    expect(runs.filter(({ code }) => code !== 0).map(shown)).toEqual([]);
    expect(scene.gateway.submissions).toHaveLength(2);
    expect(new Set(runs.map(({ stdout }) => stdout)).size).toBe(3);
    expect(readFileSync(scene.out)).toEqual(scene.gateway.served.content);
    expect(readdirSync(scene.user.cwd).sort()).toEqual(['out.mp4', 'state']);
    await scene.expectInvariants(2);
  });
});

describe.concurrent('jobs rm or a damaged index during a submission', () => {
  it('removes no job without --force: jobs rm exits with 2, and suggests the command that waits', async ({
    open,
  }) => {
    const scene = await open('c');
    let refused: CliJson | undefined;
    scene.gateway.script.submit.push(async ({ gateway, response }) => {
      const text = gateway.accept();
      refused = await scene.here(['jobs', 'rm', '@boat']);
      response.end(text);
    });
    const ended = await scene.submit('--key', 'boat');
    expect(ended.code, shown(ended)).toBe(0);
    expect(refused).toMatchObject({
      exit_code: 2,
      error: { next: ['mgw', 'jobs', 'wait', ended.json.job?.id] },
    });
    await scene.expectInvariants(1);
  });

  it('hides no job and causes no second payment if the index is deleted with its count', async ({ open }) => {
    const scene = await open('c');
    // The index also loses the line of this earlier job.
    const before = [...scene.gateway.dialect.command, '--key', 'before'];
    expect((await scene.here(before)).exit_code).toBe(0);
    scene.gateway.script.submit.push(({ gateway, response }) => {
      for (const name of ['index.log', 'index.count', 'handles.log', 'handles.count'])
        rmSync(join(stateOf(scene), name));
      response.end(gateway.accept());
    });
    scene.gateway.script.query.push({ status: 401 });
    expect((await scene.submit()).json).toMatchObject({ exit_code: 3, error: { charged: 'yes' } });
    await scene.expectRerun(0);
    expect(await scene.expectInvariants(2)).toHaveLength(2);
  });
});

describe.concurrent('SIGINT', () => {
  it('leads to exit 130 after the response if the response is pending', async ({ open }) => {
    const scene = await open('c');
    const running = scene.start(scene.command('--key', 'boat'));
    scene.gateway.script.submit.push(async ({ gateway, response }) => {
      const text = gateway.accept();
      running.child.kill('SIGINT');
      await says(running, 'Interrupted');
      response.end(text);
    });
    const run = await running.result;
    expect(run.code, shown(run)).toBe(130);
    const [job] = await ledgerOf(scene.user.env);
    expect(job).toMatchObject({ handle: scene.gateway.created[0], state: 'queued' });
    await scene.expectRerun(0);
    await scene.expectInvariants(1);
  });

  it('leads to exit 130 between two polls, and the rerun resumes', async ({ open }) => {
    const scene = await open('c');
    scene.gateway.polls = 3;
    const slowly = ['--poll-interval', '20s', '--json'];
    const running = scene.start([...scene.gateway.dialect.command, '-o', scene.out, ...slowly]);
    await says(running, 'Accepted');
    running.child.kill('SIGINT');
    const run = await running.result;
    expect(run.json, shown(run)).toMatchObject({
      exit_code: 130,
      error: { charged: 'yes', retry: 'resume' },
    });
    const resumed = await scene.submit();
    expect(resumed.code, shown(resumed)).toBe(0);
    await scene.expectInvariants(1);
  });
});
