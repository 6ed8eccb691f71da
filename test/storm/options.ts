import { Command, CommanderError, InvalidArgumentError, Option } from 'commander';

/** The command line options of `npm run storm`. */
export interface StormOptions {
  jobs: number;
  /** The random seed. The same seed produces the same storm. */
  seed: number;
  /** The probability, in percent, that a call fails in some way. */
  chaos: number;
  /** The number of concurrent command lines. */
  width: number;
  failingDisk: boolean;
  powerCut: boolean;
}

/**
 * Reads the command line. Returns undefined after --help or invalid arguments (exit code 2), once the
 * message has been printed.
 */
export function readOptions(argv: readonly string[]): StormOptions | undefined {
  try {
    return program()
      .parse([...argv], { from: 'user' })
      .opts<StormOptions>();
  } catch (error) {
    if (!(error instanceof CommanderError)) throw error;
    process.exitCode = error.exitCode === 0 ? 0 : 2;
    return undefined;
  }
}

function program(): Command {
  const { MAX_SAFE_INTEGER: max, MIN_SAFE_INTEGER: min } = Number;
  const seed = Math.floor(Math.random() * 1e6);
  return new Command('npm run storm --')
    .description('Hundreds of jobs, faults and kills against the sandbox, judged by its own count.')
    .option('--jobs <n>', 'how many jobs', between(1, 100_000), 500)
    .addOption(
      new Option('--seed <n>', 'draws the storm that this number drew before')
        .argParser(between(min, max))
        .default(seed, 'chance'),
    )
    .option('--chaos <percent>', 'chance of a call to fail', between(0, 100), 20)
    .option('--width <n>', 'how many command lines run at a time', between(1, 64), 6)
    .option('--failing-disk', 'let every operation on the disk fail in every kind of run instead', false)
    .option('--power-cut', 'cut the power at every moment of every kind of run instead', false)
    .allowExcessArguments(false)
    .showHelpAfterError()
    .exitOverride();
}

function between(min: number, max: number): (text: string) => number {
  return (text) => {
    const value = /^-?\d+$/.test(text) ? Number(text) : NaN;
    if (value >= min && value <= max) return value;
    throw new InvalidArgumentError(`must be a whole number from ${min} to ${max}.`);
  };
}
