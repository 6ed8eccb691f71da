/** A completion script for fish 3 and newer, which asks mgw itself. */
export const fishCompletion = `# fish completion for mgw, written by "mgw completion fish"
function __mgw_complete
    set -l token (commandline -ct)
    set -l words (commandline -opc)[2..-1]
    set -l answer (mgw __complete -- $words $token 2>/dev/null)
    set -l flag (string match -r -- '^--[a-z-]+=' $token)
    for line in $answer[2..-1]
        echo -- "$flag$line"
    end
    switch "$answer[1]"
        case 'program *'
            __fish_complete_subcommand --fcs-skip=(math (string split ' ' -- $answer[1])[2] + 1)
        case 'files @'
            for file in (__fish_complete_path (string replace -r -- '^(--[a-z-]+=)?@?' '' $token))
                echo -- "$flag@$file"
            end
        case files
            for file in (__fish_complete_path (string replace -r -- '^--[a-z-]+=' '' $token))
                echo -- "$flag$file"
            end
    end
end

complete -c mgw -f -a '(__mgw_complete)'
`;
