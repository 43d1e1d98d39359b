#Only C names that begin with ebb_ and the public C++ classes may be seen from outside.
execute_process(COMMAND ${NM} - D-- defined - only - C ${LIBRARY} OUTPUT_VARIABLE symbols COMMAND_ERROR_IS_FATAL ANY)
    string(REPLACE
           ";"
           "," symbols "${symbols}") string(REPLACE
                                            "\n"
                                            ";" symbols "${symbols}")
        set(allowed
            "^(ebb_[a-z_]+|ebb::(Store|History|Future|Reservation|Loan)::.*|ebb::(name_of|parse_bytes|parse_seconds|"
            "format_bytes|with_environment|set_option)(\\[abi:cxx11\\])?\\(.*|typeinfo (name )?for ebb::BadResult)$")
            set(strangers) set(c_names 0) set(cxx_names 0) foreach (line IN LISTS symbols) string(
                REGEX REPLACE
                "^[0-9a-f]* [A-Za-z] "
                "" name "${line}") if (name MATCHES "^ebb_") math(EXPR c_names "${c_names} + 1")
                elseif(name MATCHES "^ebb::Store::open") math(EXPR cxx_names "${cxx_names} + 1")
                    endif() if (name AND NOT name MATCHES "${allowed}") list(APPEND strangers "${name}") endif()
                        endforeach() if (strangers) list(JOIN strangers "\n  " strangers) message(
                            FATAL_ERROR "exported, but not of the public interface:\n  ${strangers}")
                            endif() if (c_names LESS 40 OR cxx_names LESS 1) message(
                                FATAL_ERROR
                                "the interface itself is missing: ${c_names} C names, Store::open ${cxx_names} times")
                                endif()
